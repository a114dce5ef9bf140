package profiles

import (
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// smallest is the share of the whole below which a frame is not worth drawing.
const smallest = 0.001

// Frame is a function in a flame graph, with the functions that it called.
type Frame struct {
	Name string `json:"name"`
	// Part is where a stack that ends in this frame is attributed.
	Part Part `json:"part"`
	// Value is that of the function and of all that it called.
	Value    int64    `json:"value"`
	Children []*Frame `json:"children,omitempty"`

	// byName holds the children, also the small ones, until all stacks are merged. Meanwhile
	// Part is caller if nothing up to the root is named.
	byName map[string]*Frame
}

// Flame merges the stacks of p, of kind k, into a tree. The root, named after the kind, is
// everything; children are in the order of their names, so that graphs of two profiles can
// be compared. Frames below a thousandth of the whole are left out, and remain in the value
// of their parent. What is no cost, see [Attribution.Cost], is not in the graph at all.
//
// A process that the rules do not know has no attribution: all of it is [Other]. Its block
// profile gives an empty graph, as most of it is waiting for work.
func Flame(p *profile.Profile, k Kind, attributed bool) *Frame {
	name, _ := k.values()
	at := valueIndex(p, name)
	if at < 0 || k == Block && !attributed {
		return &Frame{Name: string(k), Part: Other}
	}
	var c *classifier
	if attributed {
		c = newClassifier(k)
	}
	root := &Frame{Name: string(k), Part: caller}
	for _, s := range p.Sample {
		v, stack := s.Value[at], frames(s)
		if part := c.part(stack); v <= 0 || part == Parked || part == Admin {
			continue
		}
		f := root
		f.Value += v
		for i := len(stack) - 1; i >= 0; i-- {
			f = f.child(stack[i], c)
			f.Value += v
		}
	}
	root.finish(int64(smallest * float64(root.Value)))
	return root
}

// child returns the child of that name. Its part is what [classifier.part] says
// of its stack, given that it says f.Part of f's.
func (f *Frame) child(name string, c *classifier) *Frame {
	if child := f.byName[name]; child != nil {
		return child
	}
	if f.byName == nil {
		f.byName = make(map[string]*Frame)
	}
	child := &Frame{Name: name, Part: c.own(name, false)}
	if child.Part == caller {
		child.Part = f.Part
	}
	if child.Part == caller {
		child.Part = choose(named(background, name), false)
	}
	f.byName[name] = child
	return child
}

// finish lists the children that are not smaller than least, in the order of their names,
// and those of these.
func (f *Frame) finish(least int64) {
	if f.Part == caller {
		f.Part = Other
	}
	for _, child := range f.byName {
		if child.Value >= least {
			child.finish(least)
			f.Children = append(f.Children, child)
		}
	}
	f.byName = nil
	slices.SortFunc(f.Children, func(a, b *Frame) int { return strings.Compare(a.Name, b.Name) })
}
