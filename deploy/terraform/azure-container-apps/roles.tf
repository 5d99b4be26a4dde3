locals {
  # Replicas of each role, and the queue that scales it. One replica for each message, up to 30 workers and up to 3
  # consolidators suit a worker that fetches one page at a time. A worker fetches up to 8 pages at once, so
  # `messages_per_replica = 8` is enough if the source, and not the worker, limits the rate.
  roles = {
    server = {
      args                 = ["server", "--listen", "0.0.0.0:7171"]
      port                 = 7171
      liveness             = "/healthz"
      readiness            = "/readyz"
      replicas_min         = 2
      replicas_max         = 10
      queue                = null
      messages_per_replica = null
      grace_seconds        = 30
    }
    controller = {
      args                 = ["controller", "--metrics-listen", "0.0.0.0:9171"]
      port                 = 9171
      liveness             = "/metrics"
      readiness            = "/metrics"
      replicas_min         = 2
      replicas_max         = 2
      queue                = null
      messages_per_replica = null
      grace_seconds        = 30
    }
    scheduler = {
      args                 = ["scheduler", "--metrics-listen", "0.0.0.0:9171"]
      port                 = 9171
      liveness             = "/metrics"
      readiness            = "/metrics"
      replicas_min         = 1
      replicas_max         = 1
      queue                = null
      messages_per_replica = null
      grace_seconds        = 30
    }
    worker = {
      args                 = ["worker", "--metrics-listen", "0.0.0.0:9171"]
      port                 = 9171
      liveness             = "/metrics"
      readiness            = "/metrics"
      replicas_min         = 0
      replicas_max         = 30
      queue                = "work-items"
      messages_per_replica = 1
      grace_seconds        = 60
    }
    consolidator = {
      args                 = ["consolidator", "--metrics-listen", "0.0.0.0:9171"]
      port                 = 9171
      liveness             = "/metrics"
      readiness            = "/metrics"
      replicas_min         = 1
      replicas_max         = 3
      queue                = "consolidate"
      messages_per_replica = 1
      grace_seconds        = 30
    }
  }

  # Messages that are due or in work. A replica that holds a message counts, so that it is not removed while it works.
  queue_depth = <<-SQL
    SELECT count(*) FROM ops.messages
     WHERE queue = '%s' AND state = 'live' AND (visible_at <= now() OR locked_by IS NOT NULL)
  SQL
}
