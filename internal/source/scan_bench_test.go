package source_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
)

// pod returns a pod of about 3.4 KB with managedFields, as kube-apiserver sends it.
func pod(i int) string {
	const fields = `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0f0e0d0c-0b0a-0908-0706-050403020100\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"server\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"MODE\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`
	return fmt.Sprintf(
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-%d","generateName":"web-5d4f8c7b9-","namespace":"team-%d","uid":"3c9d7c2e-8f5b-4e59-9a51-%012d","resourceVersion":"%d","creationTimestamp":"2026-11-20T10:00:00Z","labels":{"app":"web","pod-template-hash":"5d4f8c7b9","tier":"front"},"annotations":{"prometheus.io/scrape":"true","prometheus.io/port":"8080"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d4f8c7b9","uid":"0f0e0d0c-0b0a-0908-0706-050403020100","controller":true,"blockOwnerDeletion":true}],"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":%s}]},"spec":{"volumes":[{"name":"kube-api-access","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],"containers":[{"name":"server","image":"registry.example.com/team/web:v1.2.3","ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"MODE","value":"production"}],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"node-%d","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"phase":"Running","conditions":[{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T10:00:01Z"},{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T10:00:05Z"}],"hostIP":"10.0.0.1","podIP":"10.1.0.%d","startTime":"2026-11-20T10:00:01Z","containerStatuses":[{"name":"server","state":{"running":{"startedAt":"2026-11-20T10:00:04Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/team/web:v1.2.3","containerID":"containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","started":true}],"qosClass":"Burstable"}}`,
		i, i%50, i, 1000+i, fields, i%100, i%250,
	)
}

func BenchmarkScan(b *testing.B) {
	raw := []byte(pod(1))
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	var h source.Header
	for b.Loop() {
		if err := source.Scan(source.JSON, raw, &h); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkList measures the path from the socket to the sink. The server is in the same process and is included.
func BenchmarkList(b *testing.B) {
	const objects = 20000
	items := make([]string, objects)
	for i := range items {
		items[i] = pod(i)
	}
	text := []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"999999"},"items":[` +
		strings.Join(items, ",") + `]}`)
	benchmarkSync(b, objects, false, text)
}

func BenchmarkWatchList(b *testing.B) {
	const objects = 20000
	var text bytes.Buffer
	for i := range objects {
		fmt.Fprintf(&text, "{\"type\":\"ADDED\",\"object\":%s}\n", pod(i))
	}
	text.WriteString(strings.Replace(initialEnd(999999), `"ConfigMap"`, `"Pod"`, 1))
	benchmarkSync(b, objects, true, text.Bytes())
}

// BenchmarkEvents measures changes of a watch from the socket to the sink.
func BenchmarkEvents(b *testing.B) {
	const objects = 20000
	var text bytes.Buffer
	for i := range objects {
		fmt.Fprintf(&text, "{\"type\":\"MODIFIED\",\"object\":%s}\n", pod(i))
	}
	server := newPlainServer(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.Copy(w, bytes.NewReader(text.Bytes()))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		runUntilApplied(b, server, objects)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*objects), "ns/object")
}

func benchmarkSync(b *testing.B, objects int, watchList bool, text []byte) {
	server := newPlainServer(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "true" && !watchList {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		io.Copy(w, bytes.NewReader(text))
		w.(http.Flusher).Flush()
		if watchList {
			<-r.Context().Done()
		}
	})
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		runUntilCommit(b, server, watchList, objects)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*objects), "ns/object")
}
