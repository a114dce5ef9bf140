package workload

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// choose sets v to the index of text among names.
func choose[T ~uint8](v *T, names []string, what string, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return badValue(what, string(text), "one of "+strings.Join(names, ", "))
	}
	*v = T(i)
	return nil
}

// password is one in a URL: what is between the user and the last @, unless that is a port and
// a path.
var password = regexp.MustCompile(`(//[^\s/?#:@]*:)(?:\d*[^\s\d/?#]\S*|\d*)@`)

// Redacted returns a text without the passwords of the URLs in it, as [net/url.URL.Redacted]
// does, whether or not they can be parsed.
func Redacted(text string) string { return password.ReplaceAllString(text, "${1}xxxxx@") }

// badValue is the error of a value that cannot be read.
func badValue(what, value, want string) error {
	value = Redacted(value)
	if len(value) > 100 {
		value = value[:100] + "…"
	}
	return fmt.Errorf("bad %s %q: want %s", what, value, want)
}

// maxWeight bounds the weights of a mix, so that their sum stays exact enough.
const maxWeight = 1e9

// parseWeights reads "name=weight,name=weight", setting weights[i] for names[i].
// At least one is above 0.
func parseWeights(text string, names []string, weights []float64) bool {
	clear(weights)
	seen := make([]bool, len(names))
	var total float64
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		i := slices.Index(names, name)
		weight, err := strconv.ParseFloat(number, 64)
		if i < 0 || seen[i] || err != nil || !(weight >= 0 && weight <= maxWeight) {
			return false
		}
		seen[i] = true
		weights[i] = weight + 0 // so that -0 becomes 0
		total += weight
	}
	return total > 0
}

// chooser draws an index by weight.
type chooser struct {
	bounds []float64 // bounds[i] is the share of the indices up to i
}

func newChooser(weights []float64) chooser {
	var total, sum float64
	last := 0
	for i, weight := range weights {
		total += weight
		if weight > 0 {
			last = i
		}
	}
	bounds := make([]float64, last+1)
	for i := range bounds {
		sum += weights[i]
		bounds[i] = sum / total
	}
	return chooser{bounds: bounds}
}

// choose returns the index that u, from 0 to below 1, falls on.
func (c chooser) choose(u float64) int {
	return sort.Search(len(c.bounds)-1, func(i int) bool { return u < c.bounds[i] })
}

// nameOf returns the name of a value of one of the types that have names.
func nameOf[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return strconv.Itoa(int(v))
}
