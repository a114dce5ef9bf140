#!/bin/sh
# Measures the table of docs/proxy.md: services that others wrote, alone and behind the proxy.
#
#	loadtest/figures/upstreams.sh gunicorn|php|nginx [LOADS]
#	loadtest/figures/upstreams.sh gunicorn --rates 234,390,975 --connections 64,200,2000 --warmup 0s --duration 15s
#
# It takes make build and, in the PATH, gunicorn, or php, or nginx with its echo module. With
# LOADS, flags of loadtest compare, it measures these, and Envoy with its adaptive concurrency
# if that is in the PATH. The results are in reports/upstreams-NAME, a quarter of an hour later.
set -eu
cd "$(dirname "$0")/../.."
name=${1:?gunicorn, php or nginx}
shift

# Each does so many requests at once, of 20 ms. It listens beside the proxy, at the same port of another address.
files=$PWD/reports/upstreams-files
mkdir -p "$files"
case $name in
gunicorn)
	hands=4 rates=0.8x,1.2x,2x,5x connections=1000
	cat >"$files/app.py" <<-'END'
		import time
		def app(environ, start_response):
		    time.sleep(0.02)
		    start_response("200 OK", [("Content-Length", "5")])
		    return [b"done\n"]
	END
	upstream() { echo "gunicorn --chdir '$files' --log-level error -w 4 -b $1:{port} app:app"; }
	;;
php)
	hands=4 rates=0.8x,1.2x,2x,5x connections=1000
	echo '<?php usleep(20000); echo "done\n";' >"$files/app.php"
	upstream() { echo "env PHP_CLI_SERVER_WORKERS=4 php -q -S $1:{port} '$files/app.php' 2>/dev/null"; }
	;;
nginx) # refuses what is more; as a closed loop of 64 would be mostly refusals, its rates are those of 400 a second
	hands=8 rates=320,480,800,2000 connections=4000 # fewer would all wait at once: a closed loop to auto
	upstream() {
		cat >"$files/$1.conf" <<-END
			daemon off;
			worker_processes 1;
			pid PID;
			error_log /dev/null crit;
			include /etc/nginx/modules-enabled/*-http-echo.conf;
			events { worker_connections 8192; }
			http {
			  access_log off;
			  limit_conn_zone \$server_port zone=all:1m;
			  server {
			    listen $1:PORT;
			    location / { limit_conn all 8; echo_sleep 0.02; echo done; }
			  }
			}
		END
		echo "sed 's|PORT|{port}|; s|PID|$files/{port}.pid|' '$files/$1.conf' >'$files/{port}.conf'; nginx -c '$files/{port}.conf'"
	}
	;;
*)
	echo "$0: gunicorn, php or nginx, not $name" >&2
	exit 2
	;;
esac

behind() {
	echo "$(upstream 127.0.0.2) & exec '$PWD/bin/spillway' proxy --upstream http://127.0.0.2:{port} \
--listen 127.0.0.1:{port} --admin-listen 127.0.0.1:0 --log-level error $*"
}
# Envoy's filter has the settings of its documentation.
envoy() {
	cat >"$files/envoy.yaml" <<-'END'
		static_resources:
		  listeners:
		  - address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
		    filter_chains:
		    - filters:
		      - name: envoy.filters.network.http_connection_manager
		        typed_config:
		          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
		          stat_prefix: in
		          route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: up, timeout: 60s}}]}]}
		          http_filters:
		          - name: envoy.filters.http.adaptive_concurrency
		            typed_config:
		              "@type": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
		              gradient_controller_config:
		                sample_aggregate_percentile: {value: 90}
		                concurrency_limit_params: {concurrency_update_interval: 0.1s}
		                min_rtt_calc_params: {jitter: {value: 10}, interval: 60s, request_count: 50}
		          - name: envoy.filters.http.router
		            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
		  clusters:
		  - name: up
		    circuit_breakers: {thresholds: [{max_connections: 20000, max_pending_requests: 20000, max_requests: 20000}]}
		    load_assignment: {cluster_name: up, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.2, port_value: PORT}}}}]}]}
	END
	echo "$(upstream 127.0.0.2) & sed 's|PORT|{port}|' '$files/envoy.yaml' >'$files/{port}.yaml'; \
exec envoy -c '$files/{port}.yaml' --log-level off --use-dynamic-base-id >/dev/null 2>&1"
}

if [ $# = 0 ]; then
	set -- --rates $rates --connections $connections --repetitions 3 --duration 6s --warmup 3s
elif command -v envoy >/dev/null; then
	set -- --service "envoy=$(envoy)" "$@"
fi
exec bin/loadtest compare --service "alone=$(upstream 127.0.0.1)" \
	--service "fifo=$(behind --strategy fifo --workers $hands)" \
	--service "fixed=$(behind --workers $hands --slo 200ms)" \
	--service "learned=$(behind --slo 200ms)" \
	--service "observe=$(behind --mode observe --queue-capacity 10000)" \
	--target 'GET /' --slo 200ms --out "reports/upstreams-$name" "$@"
