{{- define "spillway.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "spillway.selector" -}}
app.kubernetes.io/name: spillway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spillway.labels" -}}
{{ include "spillway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "spillway.isProxy" -}}
{{ if has .Values.mode (list "proxy" "sidecar") }}yes{{ end }}
{{- end }}

{{/* The configuration file. Numbers are written as JSON, in which they keep their digits. */}}
{{- define "spillway.config" -}}
{{- $c := dict "log-format" "json" "drain-delay" "10s" "drain-timeout" "15s" }}
{{- if eq .Values.mode "sidecar" }}
{{- $c = set $c "upstream" (printf "http://127.0.0.1:%d" (int .Values.app.port)) }}
{{- else if eq .Values.mode "cassandra" }}
{{- $c = set $c "store" "cassandra" }}
{{- end }}
{{- range $name, $value := mergeOverwrite $c .Values.config }}
{{ $name }}: {{ $value | toJson }}
{{- end }}
{{- end }}

{{- define "spillway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532 # as in the image
runAsGroup: 65532
{{- if eq .Values.mode "disk" }}
fsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "spillway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "spillway.container" -}}
- name: spillway
  image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if include "spillway.isProxy" . }}
  args: [proxy]
  {{- end }}
  ports:
    - {name: data, containerPort: 8080}
    - {name: admin, containerPort: 6060}
  env:
    - {name: SPILLWAY_CONFIG, value: /etc/spillway/spillway.yaml}
    {{- if eq .Values.mode "disk" }}
    - {name: SPILLWAY_DATA_DIR, value: /data/store} # the root of a volume may hold lost+found
    {{- end }}
    {{- range $name, $value := .Values.env }}
    - {name: {{ $name }}, value: {{ $value | toString | quote }}}
    {{- end }}
    {{- with .Values.secret }}
    {{- $secret := . }}
    # A key that is not there is a variable that is not set.
    {{- $keys := list "admin-token" }}
    {{- if not (include "spillway.isProxy" $) }}
    {{- $keys = concat $keys (list "data-token" "cassandra-username" "cassandra-password") }}
    {{- end }}
    {{- range $keys }}
    - name: SPILLWAY_{{ . | upper | replace "-" "_" }}
      valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ . }}, optional: true}}
    {{- end }}
    {{- range list "OTEL_EXPORTER_OTLP_HEADERS" }}
    - name: {{ . }}
      valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ . }}, optional: true}}
    {{- end }}
    {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  # The store begins to listen when the cluster has answered, or the log is read.
  startupProbe:
    httpGet: {path: /healthz, port: admin}
    periodSeconds: 2
    failureThreshold: 300
  # 503 while draining, and while the store or the upstream is not there.
  readinessProbe:
    httpGet: {path: /readyz, port: admin}
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 2
  # For a process that hangs. One that has too much to do still answers.
  livenessProbe:
    httpGet: {path: /healthz, port: admin}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  securityContext:
    {{- include "spillway.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: config, mountPath: /etc/spillway, readOnly: true}
    {{- if eq .Values.mode "disk" }}
    - {name: data, mountPath: /data}
    {{- end }}
{{- end }}

{{- define "spillway.pod" -}}
metadata:
  labels:
    {{- include "spillway.selector" . | nindent 4 }}
  annotations:
    # Pods are replaced when the file changes.
    spillway/config: {{ include "spillway.config" . | sha256sum }}
spec:
  terminationGracePeriodSeconds: 45 # longer than both drain times, and 10 s more for the store
  # Otherwise a service named spillway makes variables SPILLWAY_…, which would be settings.
  enableServiceLinks: false
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if ne .Values.mode "sidecar" }}
  securityContext:
    {{- include "spillway.podSecurity" . | nindent 4 }}
  {{- end }}
  {{- if ne .Values.mode "disk" }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "spillway.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  containers:
    {{- if eq .Values.mode "sidecar" }}
    - name: app
      image: {{ required "mode sidecar needs app.image" .Values.app.image | quote }}
      {{- with .Values.app.env }}
      env:
        {{- range $name, $value := . }}
        - {name: {{ $name }}, value: {{ $value | toString | quote }}}
        {{- end }}
      {{- end }}
      resources:
        {{- toYaml .Values.app.resources | nindent 8 }}
    {{- end }}
    {{- include "spillway.container" . | nindent 4 }}
  volumes:
    - name: config
      configMap: {name: {{ include "spillway.name" . }}}
{{- end }}
