module spillway/loadtest/peers

go 1.26.0

require (
	github.com/puzpuzpuz/xsync/v4 v4.5.0
	spillway v0.0.0
)

replace spillway => ../..
