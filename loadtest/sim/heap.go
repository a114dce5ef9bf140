package sim

// entry is something that comes at a time, and what comes earlier is first. Of those of the same
// time the one with the lower number is.
type entry[T int64 | float64, V any] struct {
	at    T
	seq   uint64
	value V
}

func (e *entry[T, V]) before(other *entry[T, V]) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

// heap is a binary heap, the first on top. It allocates only to grow.
type heap[T int64 | float64, V any] []entry[T, V]

func (h *heap[T, V]) push(e entry[T, V]) {
	q := append(*h, e)
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = e
	*h = q
}

// pop takes the first, which there has to be.
func (h *heap[T, V]) pop() entry[T, V] {
	q := *h
	n := len(q) - 1
	top, last := q[0], q[n]
	q[n] = entry[T, V]{}
	q = q[:n]
	*h = q
	if n == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if right := child + 1; right < n && q[right].before(&q[child]) {
			child = right
		}
		if !q[child].before(&last) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = last
	return top
}
