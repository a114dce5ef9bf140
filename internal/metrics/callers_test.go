package metrics

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/served"
)

// What clients say of themselves is counted by what became of it; they do not
// take more memory than there are places.
func TestMetrics_Asked(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	m.Asked(0, nil, 404, served.OK, time.Millisecond, time.Microsecond)
	m.Asked(0, []byte("a"), 201, served.OK, time.Second, 7)
	m.Asked(OrdinaryClass, []byte("a"), 503, served.Shed, time.Second, 0)
	m.Asked(7, []byte("b\xff"), 500, served.Error, 0, 5)
	m.Asked(7, []byte("b\xff"), 412, served.Error, 0, -1)
	classes, clients := m.Callers()
	require.Equal(t, [Classes]Tally{0: {Good: 1, Late: 1, Time: 1007}, 7: {Failed: 1, Unmet: 1, Time: 5}}, classes)
	require.Equal(t, map[string]Tally{"a": {Late: 1, Shed: 1, Time: 7}, "b\uFFFD": {Failed: 1, Unmet: 1, Time: 5}}, clients)

	m.ForgetCallers()
	m.Asked(3, []byte("a"), 200, served.OK, 0, 0)
	m.ForgetCallers()
	_, clients = m.Callers()
	require.Equal(t, map[string]Tally{"a": {Good: 1, Late: 1, Shed: 1, Time: 7}}, clients, "who is silent gives its place back")

	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 1000 {
				m.Asked(3, fmt.Appendf(nil, "c%d", (i*(g+1))%1000), 200, served.OK, 0, 0)
			}
		})
	}
	group.Wait()
	_, clients = m.Callers()
	require.LessOrEqual(t, len(clients), maxCallers+1)
	sum := uint64(0)
	for name, c := range clients {
		if name != "a" {
			sum += c.Good
		}
	}
	require.Equal(t, uint64(4000), sum, "nobody is lost or counted twice")
	require.Positive(t, clients[""].Good)
}

// A client that is known costs no memory.
func TestMetrics_AskedAllocates(t *testing.T) {
	m := New(Options{})
	client := []byte("someone")
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Asked(1, client, 200, served.OK, 0, 0) }))
}

func TestDistribution_Quantiles(t *testing.T) {
	t.Parallel()
	require.Nil(t, Distribution{}.Quantiles(0.5))
	d := Distribution{index(0.001): 90, index(0.1): 9, index(1): 1}
	got := d.Quantiles(0.5, 0.95, 0.999)
	require.InEpsilon(t, 0.001, got[0], 0.1)
	require.InEpsilon(t, 0.1, got[1], 0.1)
	require.InEpsilon(t, 1, got[2], 0.1)
	require.Len(t, d.Quantiles(0.5, 0.9, 1), 3)
	later := Distribution{index(0.001): 95, index(0.1): 9, index(1): 1, index(2): 1}
	require.Equal(t, Distribution{index(0.001): 5, index(2): 1}, later.Since(d))
	require.Empty(t, d.Since(later))
}
