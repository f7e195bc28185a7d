// Command webpage is an operator that serves web pages. For each WebPage it declares a ConfigMap with the text, a
// Deployment of a web server that mounts it, a Service, and an Ingress if the page is exposed.
package main

import (
	"cmp"
	"context"
	"log"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/dependent"
)

func newOperator(cfg *rest.Config, opts ...fairlead.Option) (*fairlead.Runtime, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	rt := fairlead.New(cfg, append(opts, fairlead.WithScheme(scheme))...)
	web := dependent.For[WebPage]()
	html := dependent.Add(web, "html", desiredConfigMap)
	server := dependent.Add(web, "server", desiredDeployment, dependent.After(html),
		dependent.Ready(dependent.IsReady[appsv1.Deployment]))
	service := dependent.Add(web, "service", desiredService, dependent.After(server))
	dependent.Add(web, "ingress", desiredIngress, dependent.After(service),
		dependent.If(func(p *WebPage) bool { return p.Spec.Exposed }))
	web.Status(func(p *WebPage, r *dependent.Report) {
		p.Status.URL = ""
		if r.Ready() && p.Spec.Exposed {
			p.Status.URL = "http://" + host(p)
		}
		r.Into(&p.Status.Conditions)
	}).Controller(rt, "webpages")
	return rt, nil
}

func desiredConfigMap(_ context.Context, p *WebPage) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{ObjectMeta: named(p), Data: map[string]string{"index.html": p.Spec.HTML}}, nil
}

func desiredDeployment(_ context.Context, p *WebPage) (*appsv1.Deployment, error) {
	page := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: p.Name}}
	return &appsv1.Deployment{ObjectMeta: named(p), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels(p)},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(p)}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "server", Image: "nginx:1.29-alpine", VolumeMounts: []corev1.VolumeMount{
				{Name: "html", MountPath: "/usr/share/nginx/html"},
			}}},
			Volumes: []corev1.Volume{{Name: "html", VolumeSource: corev1.VolumeSource{ConfigMap: &page}}},
		}},
	}}, nil
}

func desiredService(_ context.Context, p *WebPage) (*corev1.Service, error) {
	return &corev1.Service{ObjectMeta: named(p), Spec: corev1.ServiceSpec{
		Selector: labels(p), Ports: []corev1.ServicePort{{Port: 80}},
	}}, nil
}

func desiredIngress(_ context.Context, p *WebPage) (*networkingv1.Ingress, error) {
	to := networkingv1.IngressServiceBackend{Name: p.Name, Port: networkingv1.ServiceBackendPort{Number: 80}}
	return &networkingv1.Ingress{ObjectMeta: named(p), Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: host(p)}}, DefaultBackend: &networkingv1.IngressBackend{Service: &to},
	}}, nil
}

func named(p *WebPage) metav1.ObjectMeta  { return metav1.ObjectMeta{Name: p.Name, Labels: labels(p)} }
func labels(p *WebPage) map[string]string { return map[string]string{"app": p.Name} }
func host(p *WebPage) string              { return p.Name + "." + p.Namespace + ".example.com" }

func main() {
	cfg, err := fairlead.Config("")
	if err != nil {
		log.Fatal(err)
	}
	rt, err := newOperator(cfg, fairlead.WithSignals(),
		fairlead.WithListen(cmp.Or(os.Getenv("METRICS"), ":9090")))
	if err != nil {
		log.Fatal(err)
	}
	if err := rt.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
