package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	squadsv1 "github.com/fairlead-io/fairlead/examples/controller-runtime/api/v1"
)

const (
	// directory is the namespace that lists all depots. An owner reference cannot cross namespaces, so a finalizer
	// removes the entry of a depot.
	directory = "depots"
	// entryPrefix begins the names of its entries. Kubernetes has ConfigMaps of its own in each namespace.
	entryPrefix = "depot."
	// delist is the finalizer of depots.
	delist = "squads.example.com/delist"
	// inventory is the index of depots by the ConfigMap that they serve.
	inventory = ".spec.inventory"
	// checksum is the annotation of pods with the checksum of what they serve.
	checksum = "squads.example.com/inventory"

	port = 8080
)

// DepotReconciler runs a Deployment and a Service for each depot, and lists it in the directory. It needs no cache
// that shows its own writes: each object has a fixed name, so that a second creation fails.
type DepotReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// +kubebuilder:rbac:groups=squads.example.com,resources=depots,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=squads.example.com,resources=depots/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update;delete

// Reconcile implements reconcile.Reconciler.
func (r *DepotReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var depot squadsv1.Depot
	err := r.Get(ctx, req.NamespacedName, &depot)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.delist(ctx, req.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !depot.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &depot)
	}
	if controllerutil.AddFinalizer(&depot, delist) {
		return ctrl.Result{}, r.Update(ctx, &depot) // the update leads to the next call
	}
	before := depot.DeepCopy()
	if err := r.reconcile(ctx, &depot); err != nil {
		return ctrl.Result{}, err
	}
	if equality.Semantic.DeepEqual(before.Status, depot.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Update(ctx, &depot)
}

// delist removes a depot from the directory. The finalizer calls it first. An entry can still appear after that: a
// leader that has lost its lease may have a creation on the way. The watch of entries then leads here once more.
func (r *DepotReconciler) delist(ctx context.Context, depot types.NamespacedName) error {
	return client.IgnoreNotFound(r.Delete(ctx, entry(depot)))
}

// finalize removes the depot from the directory. What the depot owns is collected.
func (r *DepotReconciler) finalize(ctx context.Context, depot *squadsv1.Depot) error {
	if !controllerutil.ContainsFinalizer(depot, delist) {
		return nil
	}
	if err := r.delist(ctx, client.ObjectKeyFromObject(depot)); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(depot, delist)
	return client.IgnoreNotFound(r.Update(ctx, depot))
}

// reconcile brings everything into the wanted state, and sets the status of the depot.
func (r *DepotReconciler) reconcile(ctx context.Context, depot *squadsv1.Depot) error {
	var wares corev1.ConfigMap
	err := r.Get(ctx, types.NamespacedName{Namespace: depot.Namespace, Name: depot.Spec.Inventory}, &wares)
	if apierrors.IsNotFound(err) {
		setReady(depot, metav1.ConditionFalse, "NoInventory", "there is no ConfigMap "+depot.Spec.Inventory)
		return nil
	}
	if err != nil {
		return err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: depot.Name, Namespace: depot.Namespace}}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		if err := serve(depot, &wares, deployment); err != nil {
			return err
		}
		return ctrl.SetControllerReference(depot, deployment, r.Scheme)
	})
	if err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: depot.Name, Namespace: depot.Namespace}}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, service, func() error {
		service.Spec.Selector = labels(depot)
		if len(service.Spec.Ports) == 0 {
			service.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(port)}}
		}
		return ctrl.SetControllerReference(depot, service, r.Scheme)
	})
	if err != nil {
		return err
	}
	listed := entry(client.ObjectKeyFromObject(depot))
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, listed, func() error {
		listed.Data = map[string]string{"address": depot.Name + "." + depot.Namespace + ".svc"}
		return nil
	})
	if err != nil {
		return err
	}
	depot.Status.Available = deployment.Status.AvailableReplicas
	if s := deployment.Status; s.ObservedGeneration < deployment.Generation || s.UpdatedReplicas < depot.Spec.Replicas ||
		s.AvailableReplicas < depot.Spec.Replicas || s.Replicas > depot.Spec.Replicas {
		setReady(depot, metav1.ConditionFalse, "Progressing", "pods are being started or replaced")
		return nil
	}
	setReady(depot, metav1.ConditionTrue, "Available", "")
	return nil
}

// serve sets what the depot wants of its Deployment, and keeps what the server has set.
func serve(depot *squadsv1.Depot, wares *corev1.ConfigMap, deployment *appsv1.Deployment) error {
	b, err := json.Marshal(wares.Data) // has sorted keys
	if err != nil {
		return err
	}
	spec := &deployment.Spec
	spec.Replicas = &depot.Spec.Replicas
	spec.Selector = &metav1.LabelSelector{MatchLabels: labels(depot)}
	spec.Template.Labels = labels(depot)
	metav1.SetMetaDataAnnotation(&spec.Template.ObjectMeta, checksum, fmt.Sprintf("%x", sha256.Sum256(b)))
	if len(spec.Template.Spec.Containers) == 0 {
		spec.Template.Spec.Containers = make([]corev1.Container, 1)
	}
	container := &spec.Template.Spec.Containers[0]
	container.Name, container.Image = "depot", depot.Spec.Image
	return nil
}

func labels(depot *squadsv1.Depot) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "depot", "app.kubernetes.io/instance": depot.Name}
}

// entry returns the ConfigMap that lists a depot. The name of a namespace has no dot, so that two depots never share an
// entry.
func entry(depot types.NamespacedName) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: entryPrefix + depot.Namespace + "." + depot.Name, Namespace: directory,
	}}
}

func setReady(depot *squadsv1.Depot, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&depot.Status.Conditions, metav1.Condition{
		Type: squadsv1.DepotReady, Status: status, Reason: reason, Message: message, ObservedGeneration: depot.Generation,
	})
}

// SetupWithManager registers the reconciler with a manager.
func (r *DepotReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &squadsv1.Depot{}, inventory, func(depot client.Object) []string {
		return []string{depot.(*squadsv1.Depot).Spec.Inventory}
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&squadsv1.Depot{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.concerned)).
		Complete(r)
}

// concerned returns the depots that serve a ConfigMap, and the depot that it lists.
func (r *DepotReconciler) concerned(ctx context.Context, cm client.Object) []reconcile.Request {
	var depots squadsv1.DepotList
	err := r.List(ctx, &depots, client.InNamespace(cm.GetNamespace()), client.MatchingFields{inventory: cm.GetName()})
	if err != nil { // the cache has no such index, or its context has ended
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the depots of a ConfigMap")
		return nil
	}
	var requests []reconcile.Request
	if listed, ok := strings.CutPrefix(cm.GetName(), entryPrefix); ok && cm.GetNamespace() == directory {
		namespace, name, _ := strings.Cut(listed, ".")
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	for i := range depots.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&depots.Items[i])})
	}
	return requests
}
