package peers

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.Main(m,
		// fasthttp has one goroutine for the date, as long as the process lives,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// and one a server that sleeps for seconds before it sees that it may end.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}
