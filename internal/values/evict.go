package values

import "hash/maphash"

// freeSmallLocked makes room in the small queue.
func (s *shard) freeSmallLocked(size int) {
	for !s.small.fits(size) {
		s.leaveSmallLocked()
	}
}

// freeMainLocked makes room in the main queue.
func (s *shard) freeMainLocked(size int) {
	for rounds := maxRounds; !s.main.fits(size); {
		s.leaveMainLocked(&rounds)
	}
}

// freeIndexLocked makes room in the index.
func (s *shard) freeIndexLocked() {
	for rounds := maxRounds; s.isFullLocked(); {
		if small := s.small.used(); small*smallShare >= small+s.main.used() {
			s.leaveSmallLocked()
		} else {
			s.leaveMainLocked(&rounds)
		}
	}
}

func (s *shard) isFullLocked() bool { return s.used >= cap(s.index)*indexFull/16 }

// leaveSmallLocked takes the head off the small queue.
func (s *shard) leaveSmallLocked() {
	offset := s.small.pop(s.memory)
	r := record(s.memory[offset:])
	if !r.isLive() {
		return
	}
	hash, size := s.hash(r), r.room()
	switch {
	case r.freq() >= promoted:
		s.freeMainLocked(size)
	case r.filled() && s.main.fits(size) && !s.isFullLocked():
		// Nothing has to go for it.
	default:
		s.addGhostLocked(hash)
		s.dropLocked(s.placeLocked(hash, offset))
		return
	}
	// Looked up only now: what had to go for it may have moved others in the index.
	at := s.placeLocked(hash, offset)
	to := s.main.push(s.memory, size)
	copy(s.memory[to:], r[:size])
	record(s.memory[to:]).setFreq(0)
	s.referLocked(at, to)
}

// leaveMainLocked takes the head off the main queue, and adds it to the end again if it
// was read meanwhile and there are rounds left.
func (s *shard) leaveMainLocked(rounds *int) {
	offset := s.main.pop(s.memory)
	r := record(s.memory[offset:])
	if !r.isLive() {
		return
	}
	at := s.placeLocked(s.hash(r), offset)
	// Once a lap a record may not fit again, for what is lost at the end of the ring.
	if size := r.room(); r.freq() > 0 && *rounds > 0 && s.main.fits(size) {
		*rounds--
		r.setFreq(r.freq() - 1)
		to := s.main.repush(s.memory, r[:size])
		s.referLocked(at, to)
		return
	}
	s.dropLocked(at)
}

func (s *shard) hash(r record) uint64 { return maphash.Bytes(s.seed, r.key()) }

// ghost returns the place of a hash among the ghosts, and what is there if it is one.
func (s *shard) ghost(hash uint64) (at *uint32, mark uint32) {
	at = &s.ghosts[hash>>20&0xffffffff*uint64(len(s.ghosts))>>32]
	return at, max(1, uint32(hash))
}

func (s *shard) addGhostLocked(hash uint64) {
	at, mark := s.ghost(hash)
	*at = mark
	s.haunted = true
}

// wasGhostLocked reports whether there is a ghost, and ends it.
func (s *shard) wasGhostLocked(hash uint64) bool {
	if !s.haunted {
		return false
	}
	at, mark := s.ghost(hash)
	if *at != mark {
		return false
	}
	*at = 0
	return true
}
