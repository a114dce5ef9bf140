package sim

import (
	"fmt"
	"testing"
	"time"
)

func TestScratchAuto(t *testing.T) {
	for _, name := range []string{"auto", "fifo"} {
		for _, w := range []int{8} {
			for _, x := range []float64{.5, .8, .9, .95, .98, 1, 1.05, 1.1, 1.15, 1.2, 1.5, 2, 3, 5, 10} {
				c := standard(name, 256, x)
				c.Workers = w
				c.Arrivals = Poisson(x * c.ServiceRate())
				c.Duration = time.Duration(float64(240*time.Second) / max(1, x/1.2))
				r, err := Run(c)
				if err != nil {
					t.Fatal(err)
				}
				c.Warmup, c.Duration = 0, 15*time.Second
				cold, _ := Run(c)
				fmt.Printf("%s %d %.2f: good/c %.4f good/off %.4f p99 %6.2f mean %6.3f all-p99 %6.2f shed %v  cold15 %.4f p99 %.2f\n", name, w, x, r.OfCapacity(), r.OfOffered(), r.ServedP(99).Seconds()*1e3, r.MeanSojourn.Seconds()*1e3, r.P(99).Seconds()*1e3, r.Shed, cold.OfCapacity(), cold.ServedP(99).Seconds()*1e3)
			}
		}
	}
}
