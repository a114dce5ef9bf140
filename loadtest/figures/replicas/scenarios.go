package main

import (
	"math"
	"time"
)

// scenarios are those that ways are compared in.
var scenarios = []scenario{
	{"alike", with(replica{})},
	{"one slow: 4 times", with(replica{speed: func(time.Duration) float64 { return 0.25 }})},
	{"one stops for 10 s", with(replica{stops: span{change, change + 10*time.Second}})},
	{"one refuses for 10 s", with(replica{refuses: span{change, change + 10*time.Second}})},
	{"one fails at once for 10 s", with(replica{fails: span{change, change + 10*time.Second}})},
	{"one comes, cold: 4 times as slow", with(replica{from: change, speed: func(now time.Duration) float64 {
		return 1 / (1 + 3*math.Exp(-(now-change).Seconds()/5))
	}})},
	{"sizes: 1, 1, 2, 2, 4, 4, 8, 8, 16, 16", []replica{
		{hands: 1}, {hands: 1}, {hands: 2}, {hands: 2}, {hands: 4}, {hands: 4}, {hands: 8}, {hands: 8}, {hands: 16}, {hands: 16},
	}},
}
