{{- define "fairlead.labels" -}}
{app.kubernetes.io/name: fairlead-controller}
{{- end }}

{{- define "fairlead.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* How many replicas there are. */}}
{{- define "fairlead.replicas" -}}
{{ .Values.replicas | default (ternary 3 2 .Values.shards) }}
{{- end }}

{{- /* The service account of the controller, as the subject of a binding. */}}
{{- define "fairlead.subjects" -}}
- kind: ServiceAccount
  name: fairlead-controller
  namespace: {{ .Values.namespace.name | quote }}
{{- end }}
