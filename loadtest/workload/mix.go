package workload

import "strings"

// Op is an operation of the service.
type Op uint8

// The operations.
const (
	Put Op = iota
	Get
	Delete
	Scan
)

var opNames = []string{Put: "put", Get: "get", Delete: "delete", Scan: "scan"}

// String returns the operation's name, as in a [Mix] and in Result.Operations.
func (op Op) String() string { return nameOf(opNames, op) }

// Mix weighs the operations. Weights are relative: 1 and 1 is half and half.
type Mix struct{ Put, Get, Delete, Scan float64 }

func (m Mix) weights() []float64 {
	return []float64{Put: m.Put, Get: m.Get, Delete: m.Delete, Scan: m.Scan}
}

// UnmarshalText reads "put=50,get=45,delete=0,scan=5". What is not named has no
// weight.
func (m *Mix) UnmarshalText(text []byte) error {
	weights := make([]float64, len(opNames))
	if !parseWeights(string(text), opNames, weights) {
		return badValue("mix", string(text), "weights from 0 to 1e9, not all 0, of "+
			strings.Join(opNames, ", ")+", such as put=50,get=45,scan=5")
	}
	*m = Mix{Put: weights[Put], Get: weights[Get], Delete: weights[Delete], Scan: weights[Scan]}
	return nil
}

// Priorities weighs the values of Spillway-Priority, 0 the most important. The
// zero value sends no such header.
type Priorities [8]float64

var priorityNames = []string{"0", "1", "2", "3", "4", "5", "6", "7"}

// UnmarshalText reads one priority, "3", or weights of several, "0=10,3=90".
func (p *Priorities) UnmarshalText(text []byte) error {
	s := string(text)
	if len(s) == 1 {
		s += "=1"
	}
	var weights Priorities
	if !parseWeights(s, priorityNames, weights[:]) {
		return badValue("priority", string(text), "0 to 7, or weights of them such as 0=10,3=90")
	}
	*p = weights
	return nil
}
