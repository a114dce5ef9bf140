package lab

import "github.com/spillway-go/spillway/loadtest/result"

// Summarize returns the figures of the results of one group by repetition, nil where
// there is none.
func Summarize(results []*result.Result) map[string]Summary {
	summaries := make(map[string]Summary, len(result.Figures))
	for i := range result.Figures {
		f := &result.Figures[i]
		var values []float64
		var repetitions []int
		for n, r := range results {
			if r == nil {
				continue
			}
			if v, ok := f.In(r); ok {
				values, repetitions = append(values, v), append(repetitions, n)
			}
		}
		if len(values) > 0 {
			s := Spread(values)
			if repetitions[len(values)-1] >= len(values) {
				s.Repetitions = repetitions
			}
			summaries[f.Name] = s
		}
	}
	return summaries
}
