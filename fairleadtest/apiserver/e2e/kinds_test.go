package e2e_test

// builtInScenarios: what built-in kinds have of their own.
func builtInScenarios() []scenario {
	lease := "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
	deployments := "/apis/apps/v1/namespaces/{ns}/deployments"
	leaseOf := func(meta, spec string) string {
		return `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{` + meta + `},"spec":{` + spec + `}}`
	}
	return []scenario{
		{"secrets", []step{
			post("stringData", core+"secrets",
				`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"},"stringData":{"k":"v"},"data":{"l":"dg=="},"type":"Opaque"}`),
			post("default type", core+"secrets", `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"b"}}`),
			post("no base64", core+"secrets",
				`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"c"},"data":{"l":"?"},"type":"Opaque"}`),
			merge("stringData in a patch", core+"secrets/a", `{"stringData":{"k":"w"}}`),
			merge("type", core+"secrets/a", `{"type":"other"}`),
			remove("delete", core+"secrets/a", ``),
		}},
		{"leases", []step{
			post("create", lease, leaseOf(named, `"holderIdentity":"me","leaseDurationSeconds":15`)),
			replace("update", lease+"/a", leaseOf(`"name":"a","resourceVersion":"{create.rv}"`,
				`"holderIdentity":"you","leaseDurationSeconds":15,"acquireTime":"2020-01-01T00:00:00.000000Z"`)),
			replace("old version", lease+"/a", leaseOf(`"name":"a","resourceVersion":"{create.rv}"`, `"holderIdentity":"me"`)),
			replace("without version", lease+"/a", leaseOf(named, `"holderIdentity":"them"`)),
			replace("missing", lease+"/b", leaseOf(`"name":"b"`, `"holderIdentity":"me"`)),
			replace("missing, with version", lease+"/c", leaseOf(`"name":"c","resourceVersion":"5"`, `"holderIdentity":"me"`)),
			replace("missing, with uid", lease+"/c", leaseOf(`"name":"c","uid":"1"`, `"holderIdentity":"me"`)),
			post("negative duration", lease, leaseOf(`"name":"d"`, `"leaseDurationSeconds":-1`)),
			remove("delete", lease+"/a", ``),
		}},
		{"service accounts and services", []step{
			post("account", core+"serviceaccounts", `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"a"}}`),
			remove("delete of an account", core+"serviceaccounts/a", ``),
			post("service", core+"services",
				`{"kind":"Service","apiVersion":"v1","metadata":{"name":"a"},"spec":{"clusterIP":"None","clusterIPs":["None"],"type":"ClusterIP","sessionAffinity":"None","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"Cluster","selector":{"a":"b"}}}`),
			remove("delete of a service", core+"services/a", ``),
		}},
		{"deployments", []step{
			post("create", deployments, deploymentBody),
			merge("replicas", deployments+"/a", `{"spec":{"replicas":3}}`),
			merge("labels", deployments+"/a", `{"metadata":{"labels":{"l":"v"}}}`),
			merge("annotations", deployments+"/a", `{"metadata":{"annotations":{"a":"v"}}}`),
			merge("status", deployments+"/a/status",
				`{"metadata":{"labels":{"l":"w"},"annotations":{"a":"b"}},"status":{"replicas":1}}`),
			merge("template", deployments+"/a", `{"spec":{"template":{"metadata":{"labels":{"c":"d"}}}}}`),
			post("minimal", deployments,
				`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"b"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}}}`),
			get("scale", deployments+"/a/scale"),
			merge("scaled", deployments+"/a/scale", `{"spec":{"replicas":5}}`),
			remove("delete", deployments+"/a", ``),
		}},
		{"configmaps", []step{
			post("immutable", cms, cm(named, `,"data":{"k":"v"},"immutable":true`)),
			merge("changed", cms+"/a", `{"data":{"k":"w"}}`),
			merge("mutable again", cms+"/a", `{"immutable":false}`),
			merge("labels", cms+"/a", `{"metadata":{"labels":{"l":"v"}}}`),
			post("odd key", cms, cm(`"name":"b"`, `,"data":{"a b":"v"}`)),
			post("key twice", cms, cm(`"name":"b"`, `,"data":{"k":"v"},"binaryData":{"k":"dg=="}`)),
		}},
		{"pods", []step{
			post("full", core+"pods", podBody(named, ``)),
			post("minimal", core+"pods",
				`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}`),
			post("no containers", core+"pods",
				`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"c"},"spec":{"containers":[]}}`),
			post("eviction", core+"pods/a/eviction", `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"a"}}`),
			get("evicted", core+"pods/a"),
		}},
		{"namespaces", []step{
			post("create", "/api/v1/namespaces",
				`{"kind":"Namespace","apiVersion":"v1","metadata":{"generateName":"t-compare-"}}`),
			get("read", "/api/v1/namespaces/{create.name}"),
			post("a ConfigMap in it", "/api/v1/namespaces/{create.name}/configmaps", cm(named, ``)),
			remove("dry delete", "/api/v1/namespaces/{create.name}?dryRun=All", ``),
			remove("wrong uid", "/api/v1/namespaces/{create.name}", `{"preconditions":{"uid":"1"}}`),
			remove("delete", "/api/v1/namespaces/{create.name}", ``),
			remove("delete again", "/api/v1/namespaces/{create.name}", ``),
			post("another ConfigMap in it", "/api/v1/namespaces/{create.name}/configmaps", cm(`"name":"b"`, ``)),
			merge("the first is changed", "/api/v1/namespaces/{create.name}/configmaps/a", `{"data":{"k":"v"}}`),
			get("still there", "/api/v1/namespaces/{create.name}"),
			replace("finalized", "/api/v1/namespaces/{create.name}/finalize",
				`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"{create.name}"},"spec":{"finalizers":[]}}`),
			get("gone", "/api/v1/namespaces/{create.name}"),
			remove("all", "/api/v1/namespaces", ``),
			post("in one that is not there", "/api/v1/namespaces/none-at-all/configmaps", cm(named, ``)),
			post("thing in one that is not there", "/apis/compare.fairlead.io/v1/namespaces/none-at-all/things",
				thingOf(named, ``)),
		}},
	}
}

// deploymentBody is a Deployment with all that the real server would set by default.
const deploymentBody = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"a"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},` +
	`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i:1","resources":{},` +
	`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}},` +
	`"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}},"revisionHistoryLimit":10,"progressDeadlineSeconds":600}}`
