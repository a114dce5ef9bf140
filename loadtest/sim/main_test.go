package sim

import (
	"testing"
	"time"

	"github.com/spillway-go/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// standard is the setting of the design's figures: 8 workers, 4 ms of
// exponential work, an SLO of 100 ms, at a multiple of the capacity.
func standard(strategy string, capacity int, multiple float64, classes ...Class) Config {
	c := Config{
		Strategy: strategy, Workers: 8, Capacity: capacity, Service: Exponential(4 * time.Millisecond), Classes: classes,
		Objective: 100 * time.Millisecond, Warmup: 5 * time.Second, Duration: 20 * time.Second, Seed: 1,
	}
	return c.asked(poisson(multiple * c.ServiceRate()))
}
