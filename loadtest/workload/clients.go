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
	if _, _, ok := Clients(text).parse(); !ok {
		return badValue("clients", string(text), "weights above 0 of names of letters, digits and hyphens, each of one client or, "+
			"as in other*19, of several, such as greedy=95,other*19=5, at most "+strconv.Itoa(maxClients)+" together")
	}
	*c = Clients(text)
	return nil
}

// parse returns the names with their weights; none for the zero value.
func (c Clients) parse() (names []string, weights []float64, ok bool) {
	if c == "" {
		return nil, nil, true
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(c), ",") {
		left, number, _ := strings.Cut(part, "=")
		name, times, several := strings.Cut(left, "*")
		weight, err := strconv.ParseFloat(number, 64)
		if err != nil || !(weight > 0 && weight <= maxWeight) || name == "" || len(name) > 100 || strings.Trim(name, letters) != "" {
			return nil, nil, false
		}
		count := 1
		if several {
			if count, err = strconv.Atoi(times); err != nil || count < 1 || count > maxClients-len(names) {
				return nil, nil, false
			}
		}
		for i := range count {
			own := name
			if several {
				own += strconv.Itoa(i + 1)
			}
			if seen[own] {
				return nil, nil, false
			}
			seen[own] = true
			names, weights = append(names, own), append(weights, weight/float64(count))
		}
	}
	return names, weights, len(names) <= maxClients
}

// Names returns the names; none for the zero value. The clients must have been checked.
func (c Clients) Names() []string {
	names, _, _ := c.parse()
	return names
}

// Group returns the name that a client's is made of: other for other7, if that is
// how the clients are weighed.
func (c Clients) Group(client string) string {
	for part := range strings.SplitSeq(string(c), ",") {
		left, _, _ := strings.Cut(part, "=")
		if name, _, several := strings.Cut(left, "*"); several && strings.HasPrefix(client, name) &&
			strings.Trim(client[len(name):], "0123456789") == "" && len(client) > len(name) {
			return name
		}
	}
	return client
}
