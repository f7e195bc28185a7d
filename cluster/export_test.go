package cluster

// PIDs returns the processes of etcd and kube-apiserver, which must run.
func (c *Cluster) PIDs() (etcd, apiServer int) {
	c.op <- struct{}{}
	defer func() { <-c.op }()
	return c.etcdRun.cmd.Process.Pid, c.apiRun.cmd.Process.Pid
}
