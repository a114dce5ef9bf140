package strategies

// heap is a binary heap of what notes its place in it. The first is the one that goes before all others.
type heap[T any] struct {
	items  []T
	before func(a, b T) bool
	place  func(T) *int // where an item notes its place, counted from 1; 0 while it is not in the heap
}

func (h *heap[T]) first() T { return h.items[0] }

func (h *heap[T]) add(x T) {
	h.items = append(h.items, x)
	*h.place(x) = len(h.items)
	h.fix(x)
}

// remove needs x to be in h.
func (h *heap[T]) remove(x T) {
	var none T
	at, last := *h.place(x)-1, len(h.items)-1
	moved := h.items[last]
	h.items[last] = none
	h.items = h.items[:last]
	*h.place(x) = 0
	if at != last {
		h.items[at] = moved
		*h.place(moved) = at + 1
		h.fix(moved)
	}
}

// fix brings x, which has changed, to its place. It does nothing if x is not in h.
func (h *heap[T]) fix(x T) {
	i := *h.place(x) - 1
	if i < 0 {
		return
	}
	for i > 0 && h.before(x, h.items[(i-1)/2]) {
		i = h.move((i-1)/2, i)
	}
	for {
		child := 2*i + 1
		if child+1 < len(h.items) && h.before(h.items[child+1], h.items[child]) {
			child++
		}
		if child >= len(h.items) || !h.before(h.items[child], x) {
			break
		}
		i = h.move(child, i)
	}
	h.items[i] = x
	*h.place(x) = i + 1
}

// move moves what is at from, and returns that.
func (h *heap[T]) move(from, to int) int {
	h.items[to] = h.items[from]
	*h.place(h.items[to]) = to + 1
	return from
}
