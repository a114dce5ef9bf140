package sim

// backlog is a first-in first-out queue. It allocates only to grow.
type backlog[T any] struct {
	all  []T
	head int // those before it have been taken
}

func (b *backlog[T]) empty() bool { return b.head == len(b.all) }

func (b *backlog[T]) push(v T) {
	if b.head > len(b.all)/2 && b.head > 64 {
		n := copy(b.all, b.all[b.head:])
		clear(b.all[n:])
		b.all, b.head = b.all[:n], 0
	}
	b.all = append(b.all, v)
}

// first and last point to what is there, of which there has to be something.
func (b *backlog[T]) first() *T { return &b.all[b.head] }
func (b *backlog[T]) last() *T  { return &b.all[len(b.all)-1] }

// pop takes the first, which there has to be.
func (b *backlog[T]) pop() T {
	var none T
	v := b.all[b.head]
	b.all[b.head] = none
	b.head++
	return v
}
