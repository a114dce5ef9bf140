// Command overload serves a handler behind one of overload.Variants:
//
//	overload VARIANT PORT
package main

import "github.com/spillway-go/spillway/examples/overload"

func main() { overload.Main() }
