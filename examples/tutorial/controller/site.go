package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/dependent"

	webv1alpha1 "example.com/sites/api/web/v1alpha1"
)

// declareSite adds a controller that keeps a ConfigMap, then a Deployment, and a Service if there is a port, for
// each Site. A Site with a host also has a Route, and then a NetworkPolicy that admits only the address of the Route.
func declareSite(rt *fairlead.Runtime) {
	children := dependent.For[webv1alpha1.Site]()
	config := dependent.Add(children, "config", configOfSite)
	deployment := dependent.Add(children, "deployment", deploymentOfSite,
		dependent.After(config), dependent.Ready(dependent.IsReady[appsv1.Deployment]))
	dependent.Add(children, "service", serviceOfSite,
		dependent.After(deployment), dependent.If(func(obj *webv1alpha1.Site) bool { return obj.Spec.Port > 0 }))

	route := dependent.Add(children, "route", routeOfSite,
		dependent.If(func(obj *webv1alpha1.Site) bool { return obj.Spec.Host != "" }),
		dependent.Ready(func(route *webv1alpha1.Route) bool { return route.Status.URL != "" }))
	policy := func(ctx context.Context, obj *webv1alpha1.Site) (*networkingv1.NetworkPolicy, error) {
		return policyOfSite(obj, alloc.Values(route.Child(ctx))[addressSlot]), nil
	}
	dependent.Add(children, "policy", policy, dependent.After(route))

	children.Status(func(obj *webv1alpha1.Site, r *dependent.Report) { r.Into(&obj.Status.Conditions) })
	children.Controller(rt, "sites")
}

func routeOfSite(_ context.Context, obj *webv1alpha1.Site) (*webv1alpha1.Route, error) {
	return &webv1alpha1.Route{ObjectMeta: childOfSite(obj), Spec: webv1alpha1.RouteSpec{Host: obj.Spec.Host}}, nil
}

func policyOfSite(obj *webv1alpha1.Site, address string) *networkingv1.NetworkPolicy {
	meta := childOfSite(obj)
	from := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: address + "/32"}}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: meta,
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: meta.Labels},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{from}}},
		},
	}
}

func configOfSite(_ context.Context, obj *webv1alpha1.Site) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{ObjectMeta: childOfSite(obj), Data: obj.Spec.Config}, nil
}

func deploymentOfSite(_ context.Context, obj *webv1alpha1.Site) (*appsv1.Deployment, error) {
	meta := childOfSite(obj)
	config := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name}}
	return &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: obj.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name: "main", Image: obj.Spec.Image,
						VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/config", ReadOnly: true}},
					}},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &config}}},
				},
			},
		},
	}, nil
}

func serviceOfSite(_ context.Context, obj *webv1alpha1.Site) (*corev1.Service, error) {
	meta := childOfSite(obj)
	port := corev1.ServicePort{
		Port: obj.Spec.Port, TargetPort: intstr.FromInt32(obj.Spec.Port), Protocol: corev1.ProtocolTCP,
	}
	return &corev1.Service{
		ObjectMeta: meta,
		Spec:       corev1.ServiceSpec{Selector: meta.Labels, Ports: []corev1.ServicePort{port}},
	}, nil
}

// childOfSite returns the name and the labels of each child.
func childOfSite(obj *webv1alpha1.Site) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: obj.Namespace, Name: fmt.Sprintf("site-%s", obj.Name),
		Labels: map[string]string{"app.kubernetes.io/name": "site", "app.kubernetes.io/instance": obj.Name},
	}
}
