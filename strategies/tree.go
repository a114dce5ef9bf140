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
	// key is what the order goes by: the smallest is due first. It is constant for a task.
	key func(*Task) int64
}

// earlier reports whether a is due before b or, if they have the same key, was pushed
// before.
func (r *tree) earlier(a, b *Task) bool {
	if x, y := r.key(a), r.key(b); x != y {
		return x < y
	}
	return a.State.Number < b.State.Number
}

// rank returns the random number of t: the number of its push and the seed, well
// mixed by the last steps of SplitMix64. The former can be predicted, and so whoever knew the seed
// could choose keys that make the tree a list. Nobody does.
func (r *tree) rank(t *Task) uint64 {
	x := t.State.Number ^ r.seed
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// first returns the task that is due first, nil if there is none.
func (r *tree) first() *Task {
	t := r.root
	for t != nil && t.State.Prev != nil {
		t = t.State.Prev
	}
	return t
}

// last returns the task that is due last, nil if there is none.
func (r *tree) last() *Task {
	t := r.root
	for t != nil && t.State.Next != nil {
		t = t.State.Next
	}
	return t
}

// before returns how many tasks are due before t, which is not in the tree but
// has its number.
func (r *tree) before(t *Task) int {
	n := 0
	for at := r.root; at != nil; {
		if r.earlier(t, at) {
			at = at.State.Prev
		} else {
			n += size(at.State.Prev) + 1
			at = at.State.Next
		}
	}
	return n
}

// add adds t, which has its number.
func (r *tree) add(t *Task) {
	place, up := &r.root, (*Task)(nil)
	for own := r.rank(t); *place != nil && r.rank(*place) >= own; {
		up = *place
		up.State.Count++
		if r.earlier(t, up) {
			place = &up.State.Prev
		} else {
			place = &up.State.Next
		}
	}
	below := *place
	*place, t.State.Up = t, up
	t.State.Prev, t.State.Next = r.split(below, t)
	update(t)
}

// remove needs t to be in the tree.
func (r *tree) remove(t *Task) {
	below := r.join(t.State.Prev, t.State.Next)
	switch {
	case t.State.Up == nil:
		r.root = below
	case t.State.Up.State.Prev == t:
		t.State.Up.State.Prev = below
	default:
		t.State.Up.State.Next = below
	}
	if below != nil {
		below.State.Up = t.State.Up
	}
	for up := t.State.Up; up != nil; up = up.State.Up {
		up.State.Count--
	}
	// A pooled task must not keep those alive that it waited with.
	t.State.Prev, t.State.Next, t.State.Up, t.State.Count = nil, nil, nil, 0
}

// split divides a tree into the tasks that are due before t and the others.
func (r *tree) split(root, t *Task) (before, after *Task) {
	if root == nil {
		return nil, nil
	}
	if r.earlier(t, root) {
		before, root.State.Prev = r.split(root.State.Prev, t)
		after = root
	} else {
		root.State.Next, after = r.split(root.State.Next, t)
		before = root
	}
	update(root)
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
		a.State.Next = r.join(a.State.Next, b)
		update(a)
		return a
	default:
		b.State.Prev = r.join(a, b.State.Prev)
		update(b)
		return b
	}
}

// update corrects what follows from the children of t.
func update(t *Task) {
	if t.State.Prev != nil {
		t.State.Prev.State.Up = t
	}
	if t.State.Next != nil {
		t.State.Next.State.Up = t
	}
	t.State.Count = size(t.State.Prev) + 1 + size(t.State.Next)
}

func size(t *Task) int {
	if t == nil {
		return 0
	}
	return t.State.Count
}
