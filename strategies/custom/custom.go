// Package custom is where a build adds strategies of its own. Both binaries, the
// service and the load lab, import it. Add a file that registers them, or imports
// the package that does:
//
//	package custom
//
//	import _ "example.com/mine" // whose init calls strategies.Register
package custom
