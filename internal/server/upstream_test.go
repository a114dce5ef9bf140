package server

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/httpfront"
)

func TestUrgency(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"u=0": "0", "u=7": "7", "u=3, i": "3", "i,u=1": "1", " u=2 ; x=1 , i=?0": "2", "u=1, u=2": "2", `x="a,u=1\",u=2", u=5`: "5",
		// What does not fit is as if it were not there.
		"": "", "i": "", "u": "", "u=": "", "u=8": "", "u=-1": "", "u=1.0": "", "u=10": "", "u=?1": "", "U=1": "", "u=1, u=9": "", `x="u=1`: "", "3": "", "u:1": "",
	} {
		require.Equal(t, want, string(httpfront.Urgency([]byte(value), nil)), "%q", value)
	}
	require.Equal(t, "4", string(httpfront.Urgency([]byte("i"), []byte("4"))), "several lines are one list")
}

func TestMovedBack(t *testing.T) {
	t.Parallel()
	const arrival = int64(100 * time.Hour)
	now := time.Unix(1_800_000_000, 0)
	for value, want := range map[string]time.Duration{
		"t=1799999999":       time.Second,
		"t=1799999999.750":   250 * time.Millisecond,
		"t=1799999999750":    250 * time.Millisecond,
		"1799999999750":      250 * time.Millisecond,
		"t=1799999999750000": 250 * time.Millisecond,
		"t=1799996400":       time.Hour,
		// What does not fit, or cannot be, changes nothing.
		"t=1799996399": 0, "t=1800000000": 0, "t=1800000001": 0, "t=0": 0, "t=": 0, "": 0, "t=now": 0, "t=-1": 0, "t=1e9": 0, "t=NaN": 0,
		"t=99999999999999999999": 0, "t=999999999999999999999": 0, "t=1.2.3": 0, "s=1799999999": 0,
	} {
		require.InDelta(t, arrival-int64(want), movedBack(arrival, []byte(value), now), float64(time.Millisecond), "%q", value)
	}
	// 0 stands for no arrival, and what is less for nothing.
	require.Equal(t, int64(1), movedBack(int64(time.Second), []byte("t=1799999990"), now))
}

// A proxy in front that is trusted says when a request arrived: its deadline counts
// from then, and so does its time.
func TestRequestStart(t *testing.T) {
	eachQueue(t, func(t *testing.T, strategy string) {
		b := serveBusy(t, strategy, func(o *setup) { o.TrustRequestStart = true })
		ago := func(d time.Duration) string {
			return fmt.Sprintf("X-Request-Start: t=%d\n", time.Now().Add(-d).UnixMilli())
		}
		a := b.dial().do("GET /v0/entity?id=a" + host + ago(10*time.Minute) + "Spillway-Timeout-Ms: 60000\n\n")
		require.Equal(t, http.StatusGatewayTimeout, a.status)
		require.Equal(t, "expired", a.header.Get("Spillway-Shed"))
		b.free()
		require.Equal(t, 404, b.dial().do("GET /v0/entity?id=a"+host+ago(10*time.Minute)+"\n").status)
	})
}

// Without trust anybody could push to the front, or be taken for slow.
func TestRequestStart_Untrusted(t *testing.T) {
	t.Parallel()
	s := serve(t, "fifo")
	a := s.dial().do("GET /v0/entity?id=a" + host + "X-Request-Start: t=1\nSpillway-Timeout-Ms: 60000\n\n")
	require.Equal(t, 404, a.status)
	before := fmt.Sprintf("X-Request-Start: t=%d\n", time.Now().Add(-10*time.Minute).UnixMilli())
	a = s.dial().do("GET /v0/entity?id=a" + host + before + "Spillway-Timeout-Ms: 60000\n\n")
	require.Equal(t, 404, a.status)
}
