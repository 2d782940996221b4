{{- define "rollout-operator.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "rollout-operator.selector" -}}
app.kubernetes.io/name: rollout-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "rollout-operator.labels" -}}
{{ include "rollout-operator.selector" . }}
app.kubernetes.io/part-of: rollout-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "rollout-operator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "rollout-operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "rollout-operator.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{/* The Secret of the operator's own key. */}}
{{- define "rollout-operator.keySecret" -}}
{{ .Values.key.existingSecret | default (printf "%s-key" (include "rollout-operator.name" .)) }}
{{- end }}

{{- define "rollout-operator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What the operator does with objects of a namespace that it works in. Secrets are written and never read. */}}
{{- define "rollout-operator.rules" -}}
- apiGroups: [rollout-operator.dev]
  resources: [rolloutjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [rollout-operator.dev]
  resources: [sglangpools]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rollout-operator.dev]
  resources: [sglangpools/status, rolloutjobs/status]
  verbs: [patch, update]
- apiGroups: [rollout-operator.dev]
  resources: [sglangpools/finalizers, rolloutjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts, persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create, patch]
{{- end }}

{{- define "rollout-operator.editorRules" -}}
- apiGroups: [rollout-operator.dev]
  resources: [sglangpools, rolloutjobs]
  verbs: [create, delete, deletecollection, patch, update]
- apiGroups: [rollout-operator.dev]
  resources: [sglangpools/scale]
  verbs: [patch, update]
{{- end }}

{{- define "rollout-operator.viewerRules" -}}
- apiGroups: [rollout-operator.dev]
  resources: [sglangpools, sglangpools/status, sglangpools/scale, rolloutjobs, rolloutjobs/status]
  verbs: [get, list, watch]
{{- end }}
