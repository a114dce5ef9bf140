package machine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMachine_IsDescribed(t *testing.T) {
	t.Parallel()
	m := This()
	require.Positive(t, m.CPUs)
	require.Positive(t, m.Memory)
	require.Contains(t, m.Kernel, "Linux ")
	t.Logf("%+v", m)
}

func TestMachine_KnowsProcessors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, info, want string }{
		{"x86", "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nflags\t\t: fpu: x\n\nprocessor\t: 1\nmodel name\t: other\n", "AMD EPYC 7B13"},
		{"ARM", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "implementer 0x41, part 0xd40"},
		{"nothing known", "who\nknows", ""},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, processor([]byte(tt.info)), tt.name)
	}
}
