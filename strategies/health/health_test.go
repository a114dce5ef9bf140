package health_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/strategies/health"
)

const second = int64(time.Second)

// bench drives a set whose members are called a, b, c and so on.
type bench struct {
	t       testing.TB
	set     *health.Set
	members []*health.Member
	now     int64
}

func newBench(t testing.TB, members int) *bench {
	b := &bench{t: t, set: new(health.Set)}
	for range members {
		b.members = append(b.members, b.set.Add())
	}
	return b
}

// figures returns what each member is allowed, and when it may be probed.
func (b *bench) figures() (all [16]int64) {
	for i, m := range b.members {
		all[2*i], all[2*i+1] = int64(m.Allowed()), m.ProbeAt()
	}
	return all
}

// states tells of each member how many it may run, and when it may be probed, in seconds.
func (b *bench) states() string {
	var all []string
	for _, m := range b.members {
		switch allowed := m.Allowed(); allowed {
		case math.MaxInt:
			all = append(all, "well")
		case 0:
			all = append(all, fmt.Sprintf("rests until %g", float64(m.ProbeAt())/1e9))
		default:
			all = append(all, fmt.Sprint(allowed))
		}
	}
	return strings.Join(all, ", ")
}

// run plays a script. A word is a member and what becomes of its requests, one after the other, each in
// no time: + ended well, - failed, / could not be sent, with a number before it if so many; ? is a probe.
// A number alone is the second of the clock. What a word reports is checked against what it changed.
func (b *bench) run(script string) {
	for word := range strings.FieldsSeq(script) {
		var n int
		if word[0] >= '0' && word[0] <= '9' {
			_, err := fmt.Sscan(word, &n)
			require.NoError(b.t, err)
			b.now = int64(n) * second
			continue
		}
		m := b.members[word[0]-'a']
		if word[1:] == "?" {
			m.Probe(b.now)
			continue
		}
		times, what := 1, word[len(word)-1]
		if number := word[1 : len(word)-1]; number != "" {
			_, err := fmt.Sscan(number, &times)
			require.NoError(b.t, err)
		}
		for range times {
			before := b.figures()
			var changed bool
			if what == '/' {
				changed = m.Unreached(b.now, b.now)
			} else {
				changed = m.Ended(b.now, b.now, 16, what == '-')
			}
			require.Equal(b.t, before != b.figures(), changed, "%s: then %s", word, b.states())
		}
	}
}

func TestMember(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ script, want string }{
		"nothing was sent to them":              {"", "well, well, well"},
		"all do well":                           {"a100+ b100+ c100+", "well, well, well"},
		"two errors":                            {"b2-", "well, well, well"},
		"three errors":                          {"b3-", "well, rests until 1, well"},
		"three errors, but not in a row":        {"b2- b+ b2-", "well, well, well"},
		"it refuses":                            {"b/", "well, rests until 1, well"},
		"two are broken":                        {"a3- b/", "rests until 1, rests until 1, well"},
		"the last goes on":                      {"a/ b/ c/ c100- c100/", "rests until 1, rests until 1, well"},
		"no probe before its time":              {"9 b/ b?", "well, rests until 10, well"},
		"a probe":                               {"b/ 1 b?", "well, 1, well"},
		"a probe of one that is well":           {"1 b?", "well, well, well"},
		"it rests, whatever ends":               {"b/ b100+ b100- b100/", "well, rests until 1, well"},
		"a probe that fails":                    {"b/ 1 b? b-", "well, rests until 3, well"},
		"a probe that is refused":               {"b/ 1 b? b/", "well, rests until 3, well"},
		"no connection for a probe":             {"b/ 1 b/", "well, rests until 3, well"},
		"twice as long each time":               {"b/ 1 b/ 3 b? b- 7 b/", "well, rests until 15, well"},
		"at most 30 s":                          {"b/ 1 b/ 3 b/ 7 b/ 15 b/ 31 b/", "well, rests until 61, well"},
		"it returns":                            {"b100+ b/ 1 b? b+", "well, 2, well"},
		"as few ended well":                     {"b+ b/ 1 b? b2+", "well, 2, well"},
		"as enough did":                         {"b+ b/ 1 b? b3+", "well, 4, well"},
		"not in a row":                          {"b+ b/ 1 b? b2+ b- b+", "well, 2, well"},
		"to as many as ran":                     {"b+ b/ 1 b? b30+", "well, 16, well"},
		"and is well":                           {"b+ b/ 1 b? b31+", "well, well, well"},
		"or 30 s have gone by":                  {"b+ b/ 1 b? 20 b2+ 49 b- b+ 50 b+", "well, well, well"},
		"not sooner":                            {"b+ b/ 1 b? 20 b2+ 49 b- b+", "well, 2, well"},
		"it returns, and fails":                 {"b+ b/ 1 b? b2+ b3-", "well, rests until 3, well"},
		"it returns, and refuses":               {"b+ b/ 1 b? b2+ b/", "well, rests until 3, well"},
		"it was well, and fails again":          {"b+ b/ 1 b? b31+ b/", "well, rests until 2, well"},
		"everybody fails":                       {strings.Repeat("a- b- c- ", 1000), "well, well, well"},
		"everybody refuses but one":             {strings.Repeat("a/ b/ c+ ", 1000), "rests until 1, rests until 1, well"},
		"the others fail since":                 {"a3- " + strings.Repeat("b- c- ", 4), "rests until 0, well, well"},
		"refusing is no chance":                 {"a/ " + strings.Repeat("b- c- ", 100), "rests until 1, well, well"},
		"the last may rest once another is":     {"a+ a/ b/ c3- 1 a? a31+", "well, rests until 1, rests until 2"},
		"but not while that returns":            {"a+ a/ b/ c3- 1 a? a30+", "16, rests until 1, well"},
		"nor if it does well again":             {"a+ a/ b/ c3- c+ 1 a? a31+", "well, rests until 0, well"},
		"the last does well again":              {"9 a/ 10 a/ 12 b3- c/ 12 c+", "rests until 12, rests until 12, well"},
		"and did not fail enough":               {"9 a/ 10 a/ b/ c2- c+", "rests until 12, rests until 11, well"},
		"it is not the last":                    {"9 a/ b- c- b- c- b- c- b- c- b+", "rests until 10, well, well"},
		"the last fails too":                    {"a/ 1 a/ 3 a/ 7 a/ b/ c/", "rests until 8, rests until 8, well"},
		"it fails in a row":                     {"a/ 1 a/ 3 a/ 7 a/ b/ c3-", "rests until 8, rests until 8, well"},
		"whyever another rests":                 {"a/ 1 a? a- 3 a? a- b/ c/", "rests until 4, rests until 4, well"},
		"it fails now and then":                 {"a/ 1 a/ 3 a/ 7 a/ b/ c2- c+ c2-", "rests until 15, rests until 8, well"},
		"errors of one that refused begin anew": {"a/ b/ c/ c2- 1 a? a1+", "well, rests until 1, well"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 3)
			b.run(tt.script)
			require.Equal(t, tt.want, b.states())
		})
	}
}

// What began before a rest says nothing, however and whenever it ends.
func TestMember_WhatBeganBefore(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"b/", "b/ 1", "b/ 1 b?", "b+ b/ 1 b? b+", "b+ b/ 1 b? b7+"} {
		b := newBench(t, 3)
		b.run(then)
		before := b.states()
		for range 100 {
			require.False(t, b.members[1].Ended(0, b.now, 16, true), then)
			require.False(t, b.members[1].Ended(0, b.now, 16, false), then)
			require.False(t, b.members[1].Unreached(0, b.now), then)
		}
		require.Equal(t, before, b.states(), then)
	}
}

// What breaks may fail at once while earlier requests still end well.
func TestMember_InTheOrderOfTheirBegin(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	m := b.members[0]
	fail := func(began int64) { m.Ended(began, 100, 16, true) }
	good := func(began int64) { m.Ended(began, 100, 16, false) }
	fail(50)
	good(10)
	fail(60)
	good(50)
	fail(70)
	good(69)
	require.Equal(t, "well, well", b.states(), "a good one began between the first and the second, another between these and the third")
	fail(80)
	good(69)
	require.Equal(t, "well, well", b.states())
	fail(75)
	require.Equal(t, "rests until 1, well", strings.ReplaceAll(b.states(), ".0000001", ""))
}

func TestMember_OneAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.run("a1000- a1000/")
	require.Equal(t, "well", b.states())
}

func TestSet_Remove(t *testing.T) {
	t.Parallel()
	b := newBench(t, 3)
	b.run("a/ b3-")
	require.False(t, b.set.Remove(b.members[0]), "c is well")
	require.True(t, b.set.Remove(b.members[2]), "none is")
	b.members = b.members[1:2]
	require.Equal(t, "well", b.states())
	b.members = append(b.members, b.set.Add())
	b.run("a2- b10+ a-")
	require.Equal(t, "rests until 1, well", b.states())
	require.True(t, b.set.Remove(b.members[1]))
	require.False(t, b.set.Remove(b.members[0]))
}

// Where a part of all answers are errors, a member that gives none else rests after about as many as the
// others make unlikely, and the others do not.
func TestMember_AsOftenAsTheOthersFail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		part, least, most float64 // of all answers; errors of the broken one, in the mean
		rests             int     // of the others, in 300,000 answers
	}{{0, 3, 3, 0}, {0.01, 3, 5, 2}, {0.1, 5, 9, 4}, {0.3, 11, 16, 8}, {0.7, 30, 60, 16}} {
		t.Run(fmt.Sprint(tt.part), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			rests, errors := 0, 0
			for range 30 {
				b := newBench(t, 10)
				for i := range 10_000 {
					b.now++
					k := random.IntN(10)
					m := b.members[k]
					failed := random.Float64() < tt.part || i > 5000 && k == 0
					if m.Allowed() == 0 {
						continue
					}
					if k == 0 && i > 5000 {
						errors++
					}
					m.Ended(b.now, b.now, 1, failed)
					if m.Allowed() == 0 && k != 0 {
						rests++
					}
				}
				require.Zero(t, b.members[0].Allowed())
			}
			mean := float64(errors) / 30
			t.Logf("%.1f errors of the broken one, %d rests of others", mean, rests)
			require.GreaterOrEqual(t, mean, tt.least)
			require.LessOrEqual(t, mean, tt.most)
			require.LessOrEqual(t, rests, tt.rests)
		})
	}
}

func TestSet_Concurrently(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4)
	var all sync.WaitGroup
	for worker := range uint64(4) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(worker, 0))
			mine := b.set.Add()
			for now := range int64(20_000) {
				m := b.members[random.IntN(4)]
				at := now * second / 1000
				switch random.IntN(20) {
				case 0:
					m.Unreached(at, at)
				case 1, 2, 3:
					m.Probe(at)
				case 4:
					b.set.Remove(mine)
					mine = b.set.Add()
				default:
					m.Ended(at, at, random.IntN(32), random.IntN(3) == 0)
				}
				m.Allowed()
				m.ProbeAt()
			}
		})
	}
	all.Wait()
	for i := range 4 {
		b.run(fmt.Sprintf("9999 %c? %[1]c100+", 'a'+i))
	}
	require.Equal(t, "well, well, well, well", b.states())
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		last, want   int
		free, limits []int
	}{
		"none":                      {0, -1, nil, nil},
		"none is free":              {0, -1, []int{0, 0, -1}, []int{1, 0, 4}},
		"the only one":              {0, 0, []int{1}, []int{8}},
		"the largest share":         {0, 2, []int{3, 9, 2}, []int{6, 18, 3}},
		"of equals the next":        {0, 1, []int{1, 2, 3}, []int{3, 6, 9}},
		"of equals the next, round": {2, 0, []int{1, 2, 3}, []int{3, 6, 9}},
		"but not the last":          {1, 2, []int{0, 2, 3}, []int{3, 6, 9}},
		"before there was any":      {-1, 0, []int{1, 1}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, health.Choose(tt.last, len(tt.free), func(i int) (int, int) {
				return tt.free[i], tt.limits[i]
			}))
		})
	}
}

func BenchmarkEnded(b *testing.B) {
	for _, part := range []int{0, 101, 3} {
		name := "good"
		if part > 0 {
			name = fmt.Sprintf("one in %d fails", part)
		}
		b.Run(name, func(b *testing.B) {
			s := newBench(b, 10)
			b.ReportAllocs()
			for i := range b.N {
				m := s.members[i%10]
				m.Ended(int64(i), int64(i), 8, part > 0 && i%part == 0)
			}
		})
	}
}

func TestEnded_AllocatesNothing(t *testing.T) {
	b := newBench(t, 10)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		b.now++
		for _, m := range b.members {
			m.Ended(b.now, b.now, 8, false)
		}
		b.members[b.now%10].Ended(b.now, b.now, 8, true)
	}))
}
