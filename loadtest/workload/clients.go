package workload

import (
	"strconv"
	"strings"
)

// Clients weighs the names that are sent as Spillway-Client, as
// "greedy=95,other*19=5": one client sends 95% of the requests, and nineteen,
// named other1 to other19, send 5% together. The zero value sends no such header.
type Clients string

// maxClients is how many names there may be: what the service tells apart.
const maxClients = 1024

// UnmarshalText checks and takes a text.
func (c *Clients) UnmarshalText(text []byte) error {
	if _, _, _, ok := Clients(text).Parse(); !ok {
		return badValue("clients", string(text), "weights above 0 of names of letters, digits and hyphens, each of one client or, "+
			"as in other*19, of several, such as greedy=95,other*19=5, at most "+strconv.Itoa(maxClients)+" together")
	}
	*c = Clients(text)
	return nil
}

// Parse returns the names, what each is made of, which is other for other7, and the weights; none
// for the zero value. What is made of the same follows each other. It is false if the text cannot
// be read.
func (c Clients) Parse() (names, kinds []string, weights []float64, ok bool) {
	if c == "" {
		return nil, nil, nil, true
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(c), ",") {
		left, number, _ := strings.Cut(part, "=")
		name, times, several := strings.Cut(left, "*")
		weight, err := strconv.ParseFloat(number, 64)
		if err != nil || !(weight > 0 && weight <= maxWeight) || name == "" || len(name) > 100 || strings.Trim(name, letters) != "" {
			return nil, nil, nil, false
		}
		count := 1
		if several {
			if count, err = strconv.Atoi(times); err != nil || count < 1 || count > maxClients-len(names) {
				return nil, nil, nil, false
			}
		}
		for i := range count {
			own := name
			if several {
				own += strconv.Itoa(i + 1)
			}
			if seen[own] {
				return nil, nil, nil, false
			}
			seen[own] = true
			names, kinds, weights = append(names, own), append(kinds, name), append(weights, weight/float64(count))
		}
	}
	return names, kinds, weights, len(names) <= maxClients
}
