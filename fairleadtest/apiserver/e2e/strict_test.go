package e2e_test

import (
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/crd"
)

// TestSameAnswersOfAStrictServer plays all scenarios on a server with Options.Strict, and those of its
// kinds: fewer answers differ.
func TestSameAnswersOfAStrictServer(t *testing.T) {
	t.Parallel()
	cfg := env.Config(t)
	installThings(t, cfg)
	known := map[string]string{}
	for _, d := range differences {
		for _, at := range d.steps {
			if !slices.Contains(d.unlessStrict, at) {
				known[at] = d.name
			}
		}
	}
	for _, sc := range slices.Concat(scenarios(), kindScenarios()) {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			crds, err := crd.New([]byte(thingManifest))
			if err != nil {
				t.Fatal(err)
			}
			compareServers(t, cfg, env.Namespace(t), sc, nil, known, apiserver.Options{Strict: true, CRDs: crds})
		})
	}
}

const thingManifest = `
kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: things.compare.fairlead.io}
spec:
  group: compare.fairlead.io
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// kindScenarios: defaults and rules of each built-in kind.
func kindScenarios() []scenario {
	const (
		apps     = "/apis/apps/v1/namespaces/{ns}/"
		batch    = "/apis/batch/v1/namespaces/{ns}/"
		rbac     = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/"
		pods     = core + "pods"
		services = core + "services"
		claims   = core + "persistentvolumeclaims"
		budgets  = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
		ingress  = "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses"
		template = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`
		never    = `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i:1"}]}}`
		selected = `"selector":{"matchLabels":{"a":"b"}},` + template
	)
	of := func(apiVersion, kind, name, rest string) string {
		return `{"kind":"` + kind + `","apiVersion":"` + apiVersion + `","metadata":{"name":"` + name + `"},` + rest + `}`
	}
	workload := func(kind, name, spec string) string { return of("apps/v1", kind, name, `"spec":{`+spec+`}`) }
	pod := func(name, spec string) string { return of("v1", "Pod", name, `"spec":{`+spec+`}`) }
	service := func(name, spec string) string { return of("v1", "Service", name, `"spec":{`+spec+`}`) }
	return []scenario{
		{"defaults of pods", []step{
			post("image", pods, pod("a", `"containers":[{"name":"c","image":"x/i"},{"name":"d","image":"i:latest"},`+
				`{"name":"e","image":"r:5000/i:2"}]`)),
			post("all", pods, pod("b", `"initContainers":[{"name":"i","image":"i:1"}],`+
				`"containers":[{"name":"c","image":"i:1","ports":[{"containerPort":80}],"livenessProbe":{"httpGet":{"port":80}},`+
				`"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],`+
				`"resources":{"limits":{"cpu":"1"}},"volumeMounts":[{"name":"v","mountPath":"/v"}]}],`+
				`"volumes":[{"name":"v"},{"name":"s","secret":{"secretName":"s"}},{"name":"m","configMap":{"name":"m"}}]`)),
			post("no image", pods, pod("c", `"containers":[{"name":"c"}]`)),
			post("name twice", pods, pod("c", `"containers":[{"name":"c","image":"i"},{"name":"c","image":"i"}]`)),
			post("odd policy", pods, pod("c", `"containers":[{"name":"c","image":"i"}],"restartPolicy":"Odd"`)),
			post("missing volume", pods, pod("c",
				`"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"}]}]`)),
			merge("new image", pods+"/a", `{"spec":{"activeDeadlineSeconds":5}}`),
			apply("apply", pods+"/d?fieldManager=x", pod("d", `"containers":[{"name":"c","image":"i:1"}]`)),
		}},
		{"defaults of workloads", []step{
			post("deployment", apps+"deployments", workload("Deployment", "a", selected)),
			post("recreate", apps+"deployments", workload("Deployment", "b", `"strategy":{"type":"Recreate"},`+selected)),
			post("replicaset", apps+"replicasets", workload("ReplicaSet", "a", selected)),
			post("statefulset", apps+"statefulsets", workload("StatefulSet", "a", `"serviceName":"s","volumeClaimTemplates":[`+
				`{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}],`+
				selected)),
			post("no selector", apps+"deployments", workload("Deployment", "c", template)),
			post("other selector", apps+"deployments", workload("Deployment", "c",
				`"selector":{"matchLabels":{"a":"c"}},`+template)),
			post("negative", apps+"replicasets", workload("ReplicaSet", "c", `"replicas":-1,`+selected)),
			merge("selector", apps+"deployments/a", `{"spec":{"selector":{"matchLabels":{"c":"d"}}}}`),
			merge("fixed field", apps+"statefulsets/a", `{"spec":{"serviceName":"t"}}`),
			merge("scale", apps+"statefulsets/a/scale", `{"spec":{"replicas":2}}`),
			get("scale of a set", apps+"replicasets/a/scale"),
			apply("apply", apps+"deployments/d?fieldManager=x", workload("Deployment", "d", selected)),
			apply("apply again", apps+"deployments/d?fieldManager=x", workload("Deployment", "d", `"replicas":3,`+selected)),
		}},
		{"defaults of jobs", []step{
			post("create", batch+"jobs", of("batch/v1", "Job", "a",
				`"spec":{`+never+`}`)),
			post("no restart policy", batch+"jobs", of("batch/v1", "Job", "b", `"spec":{`+template+`}`)),
			merge("template", batch+"jobs/a", `{"spec":{"template":{"metadata":{"labels":{"x":"y"}}}}}`),
			merge("parallelism", batch+"jobs/a", `{"spec":{"parallelism":2}}`),
			merge("completions", batch+"jobs/a", `{"spec":{"completions":2}}`),
			post("indexed without completions", batch+"jobs", of("batch/v1", "Job", "i",
				`"spec":{"completionMode":"Indexed","parallelism":2,`+never+`}`)),
			post("indexed", batch+"jobs", of("batch/v1", "Job", "i",
				`"spec":{"completionMode":"Indexed","parallelism":2,"completions":2,`+never+`}`)),
			merge("indexed in tandem", batch+"jobs/i", `{"spec":{"parallelism":3,"completions":3}}`),
			merge("indexed not in tandem", batch+"jobs/i", `{"spec":{"completions":4}}`),
			merge("indexed no more", batch+"jobs/i", `{"spec":{"completionMode":"NonIndexed"}}`),
			post("suspended", batch+"jobs", of("batch/v1", "Job", "s", `"spec":{"suspend":true,`+never+`}`)),
			merge("suspended elsewhere", batch+"jobs/s",
				`{"spec":{"template":{"metadata":{"annotations":{"x":"y"}},"spec":{"nodeSelector":{"a":"b"}}}}}`),
			merge("suspended otherwise", batch+"jobs/s", `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`),
			post("cron", batch+"cronjobs", of("batch/v1", "CronJob", "a", `"spec":{"schedule":"* * * * *","jobTemplate":{"spec":`+
				`{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i:1"}]}}}}}`)),
		}},
		{"defaults of services", []step{
			post("create", services, service("a", `"ports":[{"port":80}],"selector":{"a":"b"}`)),
			replace("update without address", services+"/a", service("a", `"ports":[{"port":81}]`)),
			merge("address", services+"/a", `{"spec":{"clusterIP":"10.0.0.250","clusterIPs":["10.0.0.250"]}}`),
			post("node port", services, service("b", `"type":"NodePort","ports":[{"port":80}]`)),
			merge("keeps its port", services+"/b", `{"spec":{"ports":[{"port":80,"targetPort":8080,"protocol":"TCP"}]}}`),
			post("external", services, service("c", `"type":"ExternalName","externalName":"x.y"`)),
			post("headless", services, service("d", `"clusterIP":"None"`)),
			post("no ports", services, service("e", `"selector":{"a":"b"}`)),
			post("odd port", services, service("e", `"ports":[{"port":0}]`)),
			post("unnamed ports", services, service("e", `"ports":[{"port":1},{"port":2}]`)),
			post("balancer", services, service("f", `"type":"LoadBalancer","ports":[{"port":80}]`)),
		}},
		{"defaults of other kinds", []step{
			post("ingress", ingress, of("networking.k8s.io/v1", "Ingress", "a", `"spec":{"rules":[{"host":"x.y","http":{"paths":`+
				`[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}`)),
			post("empty ingress", ingress, of("networking.k8s.io/v1", "Ingress", "b", `"spec":{}`)),
			post("no path type", ingress, of("networking.k8s.io/v1", "Ingress", "b", `"spec":{"rules":[{"http":{"paths":`+
				`[{"path":"/","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}`)),
			post("budget", budgets, of("policy/v1", "PodDisruptionBudget", "a",
				`"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}`)),
			post("both", budgets, of("policy/v1", "PodDisruptionBudget", "b", `"spec":{"minAvailable":1,"maxUnavailable":1}`)),
			post("role", rbac+"roles", of("rbac.authorization.k8s.io/v1", "Role", "a:b",
				`"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]`)),
			post("role without verbs", rbac+"roles", of("rbac.authorization.k8s.io/v1", "Role", "b",
				`"rules":[{"apiGroups":[""],"resources":["pods"]}]`)),
			post("binding", rbac+"rolebindings", of("rbac.authorization.k8s.io/v1", "RoleBinding", "a",
				`"roleRef":{"kind":"Role","name":"a:b"},"subjects":[{"kind":"ServiceAccount","name":"x","namespace":"{ns}"},`+
					`{"kind":"User","name":"u"}]`)),
			post("binding of an account without namespace", rbac+"rolebindings",
				of("rbac.authorization.k8s.io/v1", "RoleBinding", "c", `"roleRef":{"kind":"Role","name":"a:b"},"subjects":[{"kind":"ServiceAccount","name":"x"}]`)),
			merge("other role", rbac+"rolebindings/a", `{"roleRef":{"name":"c"}}`),
			post("binding without role", rbac+"rolebindings", of("rbac.authorization.k8s.io/v1", "RoleBinding", "b",
				`"roleRef":{"kind":"Odd"}`)),
			post("claim without size", claims, of("v1", "PersistentVolumeClaim", "b",
				`"spec":{"accessModes":["ReadWriteOnce"]}`)),
		}},
	}
}
