package sim

// kind tells what happens at an event.
type kind uint8

const (
	finished kind = iota // the request has been served
	gaveUp               // the client stops waiting for the request
	retried              // the client sends the request again
	answered             // a client of a closed loop sends its next request
)

// happening is what happens to a request.
type happening struct {
	req *request
	gen uint32 // it is void if the request is not of this generation any more
	kind
}

// event is a happening to come. Of those at the same time the first planned is the first done.
type event = entry[int64, happening]

// agenda holds the events to come, in the order of their times.
type agenda struct {
	heap heap[int64, happening]
	// patience holds times at which clients give up, nearly all of which come in
	// order and are void by then: in the heap the many that wait would make every
	// step through it longer.
	patience backlog[event]
	seq      uint64
}

// plan adds an event, and returns its number.
func (a *agenda) plan(at int64, what kind, r *request) uint64 {
	e := event{at: at, seq: a.seq, value: happening{req: r, kind: what}}
	if r != nil {
		e.value.gen = r.gen
	}
	a.seq++
	if what == gaveUp && (a.patience.empty() || a.patience.last().at <= at) {
		a.patience.push(e)
	} else {
		a.heap.push(e)
	}
	return e.seq
}

// peek returns the next event, nil if there is none.
func (a *agenda) peek() *event {
	switch {
	case !a.patience.empty() && (len(a.heap) == 0 || a.patience.first().before(&a.heap[0])):
		return a.patience.first()
	case len(a.heap) > 0:
		return &a.heap[0]
	default:
		return nil
	}
}

// next takes the next event, of which there has to be one.
func (a *agenda) next() event {
	if !a.patience.empty() && a.peek() == a.patience.first() {
		return a.patience.pop()
	}
	return a.heap.pop()
}
