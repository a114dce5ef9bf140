package profiles

import (
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// smallest is the share of the whole below which a frame is not worth drawing.
const smallest = 0.001

// Frame is a function in a flame graph, with the functions that called it and
// with those that it called.
type Frame struct {
	Name string `json:"name"`
	// Part is where a stack that ends in this frame is attributed.
	Part Part `json:"part"`
	// Value is that of the function and of all that it called.
	Value    int64    `json:"value"`
	Children []*Frame `json:"children,omitempty"`
}

// Flame merges the stacks of p, of kind k, into a tree. Without attribution, for a
// process that the rules do not know, all of it is [Other]; and of blocking nothing,
// as most of it is waiting for work. The root, named after
// the kind, is everything; children are in the order of their names, so that
// graphs of two profiles can be compared. Frames below a thousandth of the
// whole are left out, and remain in the value of their parent. What is no cost,
// see [Attribution.Cost], is not in the graph at all.
func Flame(p *profile.Profile, k Kind, attributed bool) *Frame {
	root := &Frame{Name: string(k), Part: Other}
	name, _ := k.values()
	at := valueIndex(p, name)
	if at < 0 || k == Block && !attributed {
		return root
	}
	var c *classifier
	if attributed {
		c = newClassifier(k)
	}
	tree := &node{}
	for _, s := range p.Sample {
		v, stack := s.Value[at], frames(s)
		if part := c.part(stack); v <= 0 || part == Parked || part == Admin {
			continue
		}
		n := tree
		n.value += v
		for i := len(stack) - 1; i >= 0; i-- {
			n = n.child(stack[i], c)
			n.value += v
		}
	}
	root.Value = tree.value
	root.Children = tree.frames(int64(smallest * float64(tree.value)))
	return root
}

// node is a frame under construction.
type node struct {
	value    int64
	part     Part // caller if nothing up to the root is named
	children map[string]*node
}

// child returns the child of that name. Its part is what [classifier.part] says
// of its stack, given that it says n.part of n's.
func (n *node) child(name string, c *classifier) *node {
	child := n.children[name]
	if child != nil {
		return child
	}
	if n.children == nil {
		n.children = make(map[string]*node)
	}
	child = &node{part: c.own(name, false)}
	if child.part == caller {
		child.part = n.part
	}
	if child.part == caller {
		child.part = choose(named(background, name), false)
	}
	n.children[name] = child
	return child
}

// frames returns the children of n that are not smaller than least.
func (n *node) frames(least int64) []*Frame {
	var fs []*Frame
	for name, child := range n.children {
		if child.value < least {
			continue
		}
		f := &Frame{Name: name, Part: child.part, Value: child.value, Children: child.frames(least)}
		if f.Part == caller {
			f.Part = Other
		}
		fs = append(fs, f)
	}
	slices.SortFunc(fs, func(a, b *Frame) int { return strings.Compare(a.Name, b.Name) })
	return fs
}
