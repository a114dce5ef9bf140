package sim

// kind tells what happens at an event.
type kind uint8

const (
	finished kind = iota // the request has been served
	gaveUp               // the client stops waiting for the request
	retried              // the client sends the request again
	answered             // a client of a closed loop sends its next request
)

// event is something that is going to happen to a request.
type event struct {
	at  int64
	seq uint64 // orders what happens at the same time: first planned, first done
	req *request
	gen uint32 // the event is void if the request is not of this generation any more
	kind
}

// agenda holds the events to come, in the order of their times. It allocates only
// to grow.
type agenda struct {
	// heap is a binary heap, the next on top.
	heap []event
	// patience holds times at which clients give up, nearly all of which come in
	// order and are void by then: in the heap the many that wait would make every
	// step through it longer.
	patience backlog[event]
	seq      uint64
}

func (e *event) before(other *event) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

// plan adds an event, and returns its number.
func (a *agenda) plan(at int64, what kind, r *request) uint64 {
	e := event{at: at, seq: a.seq, req: r, kind: what}
	if r != nil {
		e.gen = r.gen
	}
	a.seq++
	if what == gaveUp && (a.patience.empty() || a.patience.last().at <= at) {
		a.patience.push(e)
		return e.seq
	}
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&a.heap[parent]) {
			break
		}
		a.heap[i] = a.heap[parent]
		i = parent
	}
	a.heap[i] = e
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
	top := a.heap[0]
	n := len(a.heap) - 1
	last := a.heap[n]
	a.heap[n] = event{}
	a.heap = a.heap[:n]
	if n == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if right := child + 1; right < n && a.heap[right].before(&a.heap[child]) {
			child = right
		}
		if !a.heap[child].before(&last) {
			break
		}
		a.heap[i] = a.heap[child]
		i = child
	}
	a.heap[i] = last
	return top
}
