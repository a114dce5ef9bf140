//go:build integration

package integration

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// registers are keys that several clients read and write at the same time through
// one service, in pieces: the history of each key is checked at the end of its
// piece. A write of unknown outcome may still happen at any time after, since a
// replica may have it and pass it on. So every piece has keys of its own.
type registers struct {
	t      *testing.T
	s      *service
	keys   string // what the names of the keys begin with
	seed   uint64
	pieces int

	operations, unknown, unanswered atomic.Int64
}

const (
	clientsOfPiece = 6
	shareOfPiece   = 15 // operations of a client
	keysOfPiece    = 2
)

// run does one piece after the other until stop is closed, at least one. It
// returns what must not be.
func (r *registers) run(stop <-chan struct{}) error {
	tick := time.NewTicker(10 * pace)
	defer tick.Stop()
	for {
		if err := r.piece(); err != nil {
			return fmt.Errorf("registers %s, seed %d, piece %d: %w", r.keys, r.seed, r.pieces, err)
		}
		r.pieces++
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
}

func (r *registers) piece() error {
	histories := make([][]porcupine.Operation, clientsOfPiece)
	err := concurrently(clientsOfPiece, func(i int) error {
		conn, err := dial(r.s.data)
		if err != nil {
			return err
		}
		defer conn.close()
		rng := rand.New(rand.NewPCG(r.seed, uint64(r.pieces*clientsOfPiece+i)))
		for n := range shareOfPiece {
			in := call{method: http.MethodGet, key: fmt.Sprintf("%s %d.%d", r.keys, r.pieces, rng.IntN(keysOfPiece))}
			switch rng.IntN(10) {
			case 0, 1, 2, 3:
				in.method, in.value = http.MethodPut, fmt.Sprintf("%d.%d", i, n)
			case 4:
				in.method = http.MethodDelete
			case 5:
				in.method = http.MethodHead
			}
			var headers []string
			if rng.IntN(10) == 0 {
				headers = []string{"Spillway-Timeout-Ms: 2"} // many of these end too early
			}
			op, happened, err := r.operate(conn, in, headers...)
			if err != nil {
				return err
			}
			if happened {
				op.ClientId = i
				histories[i] = append(histories[i], op)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	history := slices.Concat(histories...)
	r.operations.Add(int64(len(history)))
	return checkLinearizable(r.t, fmt.Sprintf("cluster-%s-%d", r.keys, r.pieces), history)
}

// operate does one operation. What has been turned away, could not be read, or is
// said to have had no effect, has not happened.
func (r *registers) operate(c *client, in call, headers ...string) (op porcupine.Operation, happened bool, err error) {
	op = porcupine.Operation{Input: in, Call: now()}
	a, err := c.do(in.method, entity(in.key), in.value, headers...)
	op.Return = now()
	if err != nil {
		return op, false, err
	}
	out := outcome{value: a.body}
	write := in.method == http.MethodPut || in.method == http.MethodDelete
	switch {
	case a.shed() != "": // 503 or, if it has expired, 504
		return op, false, nil
	case a.status == http.StatusServiceUnavailable && !write:
		r.unanswered.Add(1)
		return op, false, nil
	case a.status == http.StatusServiceUnavailable && strings.Contains(a.body, "no effect"):
		return op, false, nil
	case a.status == http.StatusServiceUnavailable && strings.Contains(a.body, "outcome of the write is unknown"):
		r.unknown.Add(1)
		op.Return, out = math.MaxInt64, outcome{unknown: true}
	case a.status == http.StatusNotFound && !write:
		out.value = ""
	case a.status == http.StatusOK && in.method == http.MethodHead:
		if out.length, err = strconv.Atoi(a.header.Get("Content-Length")); err != nil {
			return op, false, err
		}
	case a.status == http.StatusOK && !write,
		a.status == http.StatusCreated && in.method == http.MethodPut,
		a.status == http.StatusAccepted && in.method == http.MethodDelete:
	default:
		return op, false, fmt.Errorf("%s of %s: status %d: %s", in.method, in.key, a.status, a.body)
	}
	if a.close {
		return op, false, errors.New("the service ends a connection")
	}
	op.Output = out
	return op, true, nil
}
