package concurrency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/concurrency"
)

func TestNew_TellsWhichBoundsAreWrong(t *testing.T) {
	t.Parallel()
	for _, o := range []concurrency.Options{{Min: 2, Max: 1}, {Min: -1}, {Max: -1}} {
		_, err := concurrency.New(0, o)
		require.Error(t, err, "%+v", o)
	}
	for _, o := range []concurrency.Options{{}, {Min: 1, Max: 1}, {Min: 20_000}, {Max: 3}} {
		l, err := concurrency.New(0, o)
		require.NoError(t, err, "%+v", o)
		require.GreaterOrEqual(t, l.Limit(), max(1, o.Min))
		if o.Max > 0 {
			require.LessOrEqual(t, l.Limit(), o.Max)
		}
		require.NotEmpty(t, l.Why())
	}
}
