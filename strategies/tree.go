package strategies

// tree holds tasks in the order in which they are due, and runs through the
// tasks themselves: the treap of Raimund Seidel and Cecilia R. Aragon,
// "Randomized Search Trees", Algorithmica 16, 1996. It is a search tree by the
// order, and a heap by a random number that belongs to each task, which makes
// its shape that of a tree to which the tasks were added in random order: adding
// one, taking one out and finding how many are due before one cost O(log n)
// steps in the mean, whatever the order.
//
// Two heaps would find the first and the last as well, but not how many are due
// before a task.
type tree struct {
	root *Task
	seed uint64 // of the random numbers
}

// never is how long after its arrival a task without a deadline is due: as late
// as one with the longest deadline that the protocol knows, an hour.
const never = 3600e9

// due returns when t should be done.
func due(t *Task) int64 {
	if t.Deadline == 0 {
		return t.Arrival + never
	}
	return t.Deadline
}

// earlier reports whether a is due before b or, if at the same time, was pushed
// before.
func earlier(a, b *Task) bool {
	if x, y := due(a), due(b); x != y {
		return x < y
	}
	return a.ticket < b.ticket
}

// rank returns the random number of t: its ticket and the seed, well mixed by the
// last steps of SplitMix64. Tickets can be foretold, and so whoever knew the seed
// could choose deadlines that make the tree a list. Nobody does.
func (r *tree) rank(t *Task) uint64 {
	x := t.ticket ^ r.seed
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// first returns the task that is due first, nil if there is none.
func (r *tree) first() *Task {
	t := r.root
	for t != nil && t.prev != nil {
		t = t.prev
	}
	return t
}

// last returns the task that is due last, nil if there is none.
func (r *tree) last() *Task {
	t := r.root
	for t != nil && t.next != nil {
		t = t.next
	}
	return t
}

// before returns how many tasks are due before t, which is not in the tree but
// has its ticket.
func (r *tree) before(t *Task) int {
	n := 0
	for at := r.root; at != nil; {
		if earlier(t, at) {
			at = at.prev
		} else {
			n += size(at.prev) + 1
			at = at.next
		}
	}
	return n
}

// add adds t, which has its ticket.
func (r *tree) add(t *Task) {
	place, up := &r.root, (*Task)(nil)
	for own := r.rank(t); *place != nil && r.rank(*place) >= own; {
		up = *place
		up.size++
		if earlier(t, up) {
			place = &up.prev
		} else {
			place = &up.next
		}
	}
	below := *place
	*place, t.up = t, up
	t.prev, t.next = split(below, t)
	adopt(t)
}

// remove needs t to be in the tree.
func (r *tree) remove(t *Task) {
	below := r.join(t.prev, t.next)
	switch {
	case t.up == nil:
		r.root = below
	case t.up.prev == t:
		t.up.prev = below
	default:
		t.up.next = below
	}
	if below != nil {
		below.up = t.up
	}
	for up := t.up; up != nil; up = up.up {
		up.size--
	}
	// A pooled task must not keep those alive that it waited with.
	t.prev, t.next, t.up, t.size = nil, nil, nil, 0
}

// split divides a tree into the tasks that are due before t and the others.
func split(root, t *Task) (before, after *Task) {
	if root == nil {
		return nil, nil
	}
	if earlier(t, root) {
		before, root.prev = split(root.prev, t)
		after = root
	} else {
		root.next, after = split(root.next, t)
		before = root
	}
	adopt(root)
	return before, after
}

// join returns the tree of the tasks of a and b, all of a being due before all
// of b.
func (r *tree) join(a, b *Task) *Task {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case r.rank(a) >= r.rank(b):
		a.next = r.join(a.next, b)
		adopt(a)
		return a
	default:
		b.prev = r.join(a, b.prev)
		adopt(b)
		return b
	}
}

// adopt corrects what follows from the children of t.
func adopt(t *Task) {
	if t.prev != nil {
		t.prev.up = t
	}
	if t.next != nil {
		t.next.up = t
	}
	t.size = size(t.prev) + 1 + size(t.next)
}

func size(t *Task) int {
	if t == nil {
		return 0
	}
	return t.size
}
