package openapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is not as it is described is found.
func TestOperation_Check(t *testing.T) {
	t.Parallel()
	d, err := Read()
	require.NoError(t, err)
	const problem = "application/problem+json"
	for _, tt := range []struct {
		method, path string
		status       int
		header       map[string]string
		body         string
		want         string // "" if all is well
	}{
		{"GET", "/v0/entity", 200, map[string]string{"Content-Type": "application/octet-stream", "ETag": `"x"`}, "value", ""},
		{"GET", "/v0/entity", 404, nil, "", ""},
		{"GET", "/v0/entity", 500, map[string]string{"Content-Type": problem}, `{"title":"x","status":500,"detail":"x"}`, ""},
		{"GET", "/v0/entities", 200, map[string]string{"Content-Type": "application/x-ndjson"}, `{"key":"YQ==","value":""}` + "\n" + `{"next":"YQ"}` + "\n", ""},
		{"GET", "/v0/entity", 206, nil, "", "status 206 is not described"},
		{"GET", "/v0/entity", 404, nil, "body", "none is described"},
		{"GET", "/v0/entity", 200, map[string]string{"Content-Type": "text/html"}, "", "text/html"},
		{"GET", "/v0/entity", 200, map[string]string{"Content-Type": "application/octet-stream", "ETag": "x"}, "", "Etag at '': 'x' does not match pattern"},
		{"GET", "/v0/entity", 404, map[string]string{"Spillway-Secret": "x"}, "", "Spillway-Secret"},
		{"PUT", "/v0/entity", 405, map[string]string{"Content-Type": problem}, `{"title":"x","status":405,"detail":"x"}`, "no header Allow"},
		{"PUT", "/v0/entity", 400, map[string]string{"Content-Type": problem}, `{"title":"x","status":400}`, "missing property 'detail'"},
		{"PUT", "/v0/entity", 400, map[string]string{"Content-Type": problem}, `{"title":"x","status":"400","detail":"x"}`, "got string, want integer"},
		{"PUT", "/v0/entity", 400, map[string]string{"Content-Type": problem}, `{"title":"x","status":200,"detail":"x"}`, "minimum: got 200, want 400"},
		{"PUT", "/v0/entity", 400, map[string]string{"Content-Type": problem}, `{`, "unexpected end"},
		{"PUT", "/v0/entity", 503, map[string]string{"Content-Type": problem, "Spillway-Shed": "boredom"}, `{"title":"x","status":503,"detail":"x"}`, "value must be one of"},
		{"GET", "/v0/entities", 200, map[string]string{"Content-Type": "application/x-ndjson"}, `{"key":"YQ==","size":1}`, "'oneOf' failed, none matched"},
		{"POST", "/v0/entities", 200, map[string]string{"Content-Type": "application/x-ndjson"}, `{"status":201,"more":1}`, "additional properties 'more' not allowed"},
		{"POST", "/v0/entities", 412, map[string]string{"Content-Type": problem}, `{"title":"x","status":412,"detail":"x","operations":[]}`, "minItems: got 0, want 1"},
		{"GET", "/strategy", 200, map[string]string{"Content-Type": "application/json"}, `{"strategy":"x","mode":"enforce","workers":1.5,"capacity":null,"available":[]}`, "at '/workers': got number, want integer"},
		{"GET", "/strategy", 200, map[string]string{"Content-Type": "application/json"}, `{"strategy":"x","mode":"enforce","workers":1,"capacity":null,"objective":{"set":"","in_force":"100ms","why":"x"},"available":[1]}`, "at '/available/0'"},
	} {
		op := d.Operation(tt.method, tt.path)
		require.NotNil(t, op)
		header := http.Header{}
		for name, value := range tt.header {
			header.Set(name, value)
		}
		err := op.Check(tt.method, tt.status, header, tt.body)
		if tt.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tt.want)
	}
	require.Nil(t, d.Operation("PATCH", "/v0/entity"))
}
