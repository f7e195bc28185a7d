package e2e_test

import (
	"maps"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
)

func get(name, path string) step { return step{name: name, method: http.MethodGet, path: path} }

func post(name, path, body string) step {
	return step{name: name, method: http.MethodPost, path: path, body: body, header: jsonBody}
}

func replace(name, path, body string) step {
	return step{name: name, method: http.MethodPut, path: path, body: body, header: jsonBody}
}

func remove(name, path, body string) step {
	s := step{name: name, method: http.MethodDelete, path: path, body: body}
	if body != "" {
		s.header = jsonBody
	}
	return s
}

func patch(name string, t types.PatchType, path, body string) step {
	return step{
		name: name, method: http.MethodPatch, path: path, body: body,
		header: map[string]string{"Content-Type": string(t)},
	}
}

func merge(name, path, body string) step { return patch(name, types.MergePatchType, path, body) }

func apply(name, path, body string) step { return patch(name, types.ApplyYAMLPatchType, path, body) }

// watchStep opens a watch that is read by later steps, see events.
func watchStep(name, path string) step {
	s := get(name, path)
	s.open = true
	return s
}

func events(name, of string, count int) step { return step{name: name, watch: of, count: count} }

func (s step) with(header, value string) step {
	s.header = maps.Clone(s.header)
	if s.header == nil {
		s.header = map[string]string{}
	}
	s.header[header] = value
	return s
}

var jsonBody = map[string]string{"Content-Type": "application/json"}

// cm is a ConfigMap with this metadata and these other fields, each beginning with a comma.
func cm(meta, rest string) string {
	return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{` + meta + `}` + rest + `}`
}

func thingOf(meta, rest string) string {
	return `{"kind":"Thing","apiVersion":"compare.fairlead.io/v1","metadata":{` + meta + `}` + rest + `}`
}

const named = `"name":"a"`

// podBody is a pod with all that the real server would set by default.
func podBody(meta, spec string) string {
	return `{"kind":"Pod","apiVersion":"v1","metadata":{` + meta +
		`},"spec":{"containers":[{"name":"c","image":"i:1","resources":{},` +
		`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],` +
		`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler",` +
		`"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},` +
		`{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],` +
		`"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"` + spec + `}}`
}
