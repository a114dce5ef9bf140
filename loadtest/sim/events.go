package sim

// kind tells what happens at an event.
type kind uint8

const (
	finished kind = iota // the request has been served
	gaveUp               // the client stops waiting for the request
	retried              // the client sends the request again
	answered             // a client of a closed loop sends its next request
	sampled              // an interval of the timeline ends
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
	// step through it longer. Those before head have been taken.
	patience []event
	head     int
	seq      uint64
}

func (e *event) before(other *event) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

// plan adds an event.
func (a *agenda) plan(at int64, what kind, r *request) {
	e := event{at: at, seq: a.seq, req: r, kind: what}
	if r != nil {
		e.gen = r.gen
	}
	a.seq++
	if n := len(a.patience); what == gaveUp && (n == a.head || a.patience[n-1].at <= at) {
		a.await(e)
		return
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
}

// await adds an event after all others of patience.
func (a *agenda) await(e event) {
	if a.head > len(a.patience)/2 {
		n := copy(a.patience, a.patience[a.head:])
		clear(a.patience[n:])
		a.patience, a.head = a.patience[:n], 0
	}
	a.patience = append(a.patience, e)
}

// peek returns the next event, nil if there is none.
func (a *agenda) peek() *event {
	switch {
	case a.head == len(a.patience) && len(a.heap) == 0:
		return nil
	case a.head == len(a.patience):
		return &a.heap[0]
	case len(a.heap) == 0 || a.patience[a.head].before(&a.heap[0]):
		return &a.patience[a.head]
	default:
		return &a.heap[0]
	}
}

// next takes the next event, of which there has to be one.
func (a *agenda) next() event {
	if a.head < len(a.patience) && a.peek() == &a.patience[a.head] {
		e := a.patience[a.head]
		a.patience[a.head] = event{}
		a.head++
		return e
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
