// Command webpages validates, defaults and converts WebPages.
package main

import (
	"context"
	"log"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	v1 "github.com/fairlead-io/fairlead/examples/guides/webpages/v1"
	v2 "github.com/fairlead-io/fairlead/examples/guides/webpages/v2"
)

func declareHooks(rt *fairlead.Runtime) {
	hooks := admission.Serve(rt, admission.Options{
		Name: "webpages", Namespace: "webpages-system", Service: "webpages-webhook",
	})
	admission.Validate(hooks, admission.Rule{OnFailure: admission.FailClosed}, validate)
	admission.Mutate(hooks, admission.Rule{OnFailure: admission.FailOpen}, setDefaults)
	admission.Convert(hooks, v1ToV2, v2ToV1) // v2 is the hub
}

func validate(_ context.Context, r *admission.Request[v2.WebPage]) error {
	if r.Old != nil && r.Old.Spec.Host != r.Object.Spec.Host {
		return field.Forbidden(field.NewPath("spec", "host"), "it cannot be changed")
	}
	if r.Object.Spec.Replicas > 100 {
		r.Warn("%d replicas are a lot", r.Object.Spec.Replicas)
	}
	return nil
}

func setDefaults(_ context.Context, r *admission.Request[v2.WebPage]) error {
	if r.Object.Spec.Port == 0 {
		r.Object.Spec.Port = 80
	}
	return nil
}

const replicasAnnotation = "example.com/replicas" // v1 has no field for it

func v1ToV2(_ context.Context, in *v1.WebPage) (*v2.WebPage, error) {
	out := &v2.WebPage{ObjectMeta: *in.ObjectMeta.DeepCopy()}
	out.Spec.Host, out.Spec.Port = in.Spec.Host, in.Spec.Port
	if text, ok := out.Annotations[replicasAnnotation]; ok {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, err
		}
		out.Spec.Replicas = int32(n)
		delete(out.Annotations, replicasAnnotation)
	}
	return out, nil
}

func v2ToV1(_ context.Context, in *v2.WebPage) (*v1.WebPage, error) {
	out := &v1.WebPage{ObjectMeta: *in.ObjectMeta.DeepCopy()}
	out.Spec.Host, out.Spec.Port = in.Spec.Host, in.Spec.Port
	if in.Spec.Replicas != 0 {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[replicasAnnotation] = strconv.Itoa(int(in.Spec.Replicas))
	}
	return out, nil
}

func main() {
	cfg, err := fairlead.Config("")
	if err != nil {
		log.Fatal(err)
	}
	rt := fairlead.New(cfg, fairlead.WithScheme(newScheme()), fairlead.WithSignals(),
		fairlead.WithListen(":9090"))
	declareHooks(rt)
	if err := rt.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
