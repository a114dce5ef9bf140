package rules

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies"
)

func request(path string, headers ...string) *Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return &Request{Peer: "192.0.2.1", Path: func() string { return r.URL.Path }, Header: r.Header.Get}
}

func TestClient(t *testing.T) {
	t.Parallel()
	var c Client
	require.NoError(t, c.UnmarshalText([]byte("address")))
	require.Equal(t, "192.0.2.1", c.Of(request("/")))
	require.NoError(t, c.UnmarshalText([]byte("header:X-Api-Key")))
	require.Equal(t, "192.0.2.1", c.Of(request("/")), "who has none counts for the address")
	one, two := c.Of(request("/", "X-Api-Key", "one")), c.Of(request("/", "X-Api-Key", "two"))
	require.NotEqual(t, one, two)
	require.Equal(t, one, c.Of(request("/x", "X-Api-Key", "one")))
	require.NotContains(t, one, "one")
	require.Len(t, one, 24)
	require.Equal(t, map[string]int{"one": 4, one: 4}, Weights(map[string]int{"one": 4}))
	require.Empty(t, Weights(nil))
	for _, bad := range []string{"", "header:", "header:a b", "cookie:a"} {
		require.ErrorContains(t, new(Client).UnmarshalText([]byte(bad)), "header:NAME", bad)
	}
}

func TestPriorities(t *testing.T) {
	t.Parallel()
	const text = "path:/admin=6,path:/checkout=0,header:X-Urgency,path:/=4"
	var p Priorities
	require.NoError(t, p.UnmarshalText([]byte(text)))
	require.Equal(t, text, p.String())
	for _, tt := range []struct {
		r    *Request
		want int
	}{
		{request("/admin"), 6},
		{request("/admin/users?x=1"), 6},
		{request("/administration"), 4}, // not below it
		{request("/checkout/1"), 0},
		{request("/checkout/../admin"), 6}, // where it leads
		{request("/checkout/%2e%2e/admin"), 6},
		{request("//admin/./users"), 6},
		{request("/checkout/1", "X-Urgency", "7"), 0}, // the first that fits
		{request("/other", "X-Urgency", "7"), 7},
		{request("/other", "X-Urgency", "u=2, i"), 2},
		{request("/other", "X-Urgency", "high"), 4},
		{request("/other", "X-Urgency", "9"), 4},
	} {
		require.Equal(t, strategies.Urgency(tt.want), p.Of(tt.r), tt.r.Path())
	}
	require.Zero(t, Priorities(nil).Of(request("/")))
	for _, bad := range []string{"", "path:/a", "path:a=1", "path:/a=8", "path:/a=", "header:", "header:a b", "/a=1", "path:/a=1,"} {
		require.ErrorContains(t, new(Priorities).UnmarshalText([]byte(bad)), "rules such as", bad)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	var p Paths
	require.NoError(t, p.UnmarshalText([]byte("/health,/static/")))
	require.Equal(t, "/health,/static/", p.String())
	for path, want := range map[string]bool{
		"/health": true, "/health/db": true, "/healthy": false, "/static/a.js": true, "/static": false, "/": false,
		// What leads elsewhere is elsewhere.
		"/health/../report": false, "/health/..": false, "/x/../health": true, "//health": true, "/static/.": true, "/static/..": false,
		"/health/.well-known": true, "*": false, "": false,
	} {
		require.Equal(t, want, p.Has(path), path)
	}
	for _, bad := range []string{"", "health", "/a,,/b"} {
		require.ErrorContains(t, new(Paths).UnmarshalText([]byte(bad)), "paths such as", bad)
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	const text = "/orders/*/items=items,/orders/*=orders,/search=search,/buy=orders"
	var r Routes
	require.NoError(t, r.UnmarshalText([]byte(text)))
	require.Equal(t, text, r.String())
	require.Equal(t, []string{"items", "orders", "search"}, r.Names())
	for path, want := range map[string]string{
		"/orders/7/items": "items", "/orders/7": "orders", "/orders/7/items/8": "orders", "/orders/": "orders", "/orders": Other,
		"/orders//items": "orders", "/search": "search", "/search/": Other, "/search/../buy": "orders", "/": Other, "*": Other,
	} {
		require.Equal(t, want, r.Of(path), path)
	}
	require.Equal(t, Other, Routes(nil).Of("/"))
	many := "/0=n0"
	for n := range MostRoutes {
		many += fmt.Sprintf(",/%d=n%d", n+1, n+1)
	}
	for _, bad := range []string{"", "/a", "a=b", "/a=", "/a=b c", "/a=b,", many} {
		require.ErrorContains(t, new(Routes).UnmarshalText([]byte(bad)), "at most 64", bad)
	}
}
