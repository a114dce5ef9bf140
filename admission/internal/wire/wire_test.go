package wire

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/admission"
	"github.com/spillway-go/spillway/strategies"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reason         strategies.Reason
		after          time.Duration
		status, orElse int
		retryAfter     string
	}{
		// What comes again later may be served.
		{strategies.ReasonFull, time.Second, 503, 429, "1"},
		{strategies.ReasonCoDel, 1500 * time.Millisecond, 503, 429, "2"},
		{strategies.ReasonLate, 3 * time.Second, 503, 429, "3"},
		{"somebodys-own", 30 * time.Second, 503, 429, "30"},
		// It is not that there were too many requests.
		{strategies.ReasonDraining, time.Second, 503, 503, "1"},
		{strategies.ReasonExpired, 0, 504, 504, ""},
		{strategies.ReasonAbandoned, 0, 503, 503, ""},
	} {
		for tooMany, status := range map[bool]int{false: row.status, true: row.orElse} {
			r := Refuse(&admission.ShedError{Reason: row.reason, RetryAfter: row.after}, tooMany)
			require.Equal(t, status, r.Status, row.reason)
			require.Equal(t, row.retryAfter, r.RetryAfter, row.reason)
			require.Equal(t, row.reason.String(), r.Reason)
			var problem struct {
				Title, Detail string
				Status        int
			}
			require.NoError(t, json.Unmarshal([]byte(r.Body), &problem))
			require.Equal(t, status, problem.Status)
			require.NotEmpty(t, problem.Title)
			require.NotEmpty(t, problem.Detail)
		}
	}
	mistake := Refuse(errors.New("admission: Cost is -1"), true)
	require.Equal(t, Refusal{Status: 500, Body: `{"title":"Internal Server Error","status":500,"detail":"admission: Cost is -1"}`}, mistake)
	for _, r := range strategies.Reasons() {
		require.Contains(t, details, r)
	}
}

func TestPriority(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		spillway, priority string
		want               strategies.Priority
	}{
		{"", "", 5},
		{"0", "", strategies.MostImportant},
		{"7", "u=1", 7},
		// One that does not fit is none.
		{"8", "u=1", 1},
		{"-1", "", 5},
		{"07", "u=9", 5},
		{"", "u=0", strategies.MostImportant},
		{"", "i, u=2", 2},
		{"", `x="a,u=7", u=2;y`, 2},
		{"", `x="a\",u=7", u=4`, 4},
		{"", "u=1, u=6", 6},
		{"", "u=1, u=9", 5},
		{"", "urgency=1,U=1,u", 5},
	} {
		require.Equal(t, row.want, Priority(row.spillway, row.priority, 5), "%q %q", row.spillway, row.priority)
	}
}

func TestWishes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "me", Client("me", "x"))
	require.Equal(t, "x", Client("", "x"))
	require.Equal(t, "x", Client(string(make([]byte, 129)), "x"))
	require.Equal(t, 20*time.Millisecond, Timeout("20"))
	for _, bad := range []string{"", "0", "-1", "3600001", "1s", "99999999999999999999"} {
		require.Zero(t, Timeout(bad), bad)
	}
	require.Equal(t, "::1", Host("[::1]:80"))
	require.Equal(t, "10.0.0.1", Host("10.0.0.1:80"))
	require.Equal(t, "@", Host("@"))
	require.True(t, IsHealthCheck("HEAD", "/livez"))
	require.False(t, IsHealthCheck("POST", "/livez"))
	require.False(t, IsHealthCheck("GET", "/livez/x"))
	require.True(t, IsEventStream("Text/Event-Stream ; charset=utf-8"))
	require.False(t, IsEventStream("text/event-streams"))
}
