package controller

import (
	"cmp"
	"os"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
)

// ServeWebhooks adds the webhooks to a runtime. It writes their configuration and certificates. In a cluster the API
// server reaches them through the Service of deploy/webhook.yaml, and elsewhere at the loopback address. The variable
// WEBHOOK_ADDRESS of the environment replaces the address, which is :9443 in a cluster and 127.0.0.1:9443 elsewhere.
func ServeWebhooks(rt *fairlead.Runtime, inCluster bool) {
	o := admission.Options{Name: Account.Name, Namespace: Account.Namespace, Service: "sites-webhook"}
	o.Listen = os.Getenv("WEBHOOK_ADDRESS")
	if !inCluster {
		o.Namespace, o.Service = "kube-system", ""
		o.Listen = cmp.Or(o.Listen, "127.0.0.1:9443")
		o.URL = "https://" + o.Listen
		o.Linger = -1 // no other replica takes over
	}
	declareWebhooks(rt, admission.Serve(rt, o))
}

func declareWebhooks(rt *fairlead.Runtime, h *admission.Hooks) {
	declareSiteWebhooks(rt, h)
	declareSiteV1(rt, h)
	//fairlead:new webhooks
}
