# Tidemill on Azure Container Apps: the roles that need no rights on their machine. PostgreSQL, the environment, the
# identity and the secrets exist already. Agents run on virtual machines or in Kubernetes, because the platform does not
# allow the namespaces that isolate tasks.
#
# Status: parsed and checked by `cargo xtask test`; not applied yet.

terraform {
  required_version = ">= 1.5"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 4.0"
    }
  }
}

# Start the job before each deployment of a new version: `az containerapp job start --name tidemill-migrate`.
resource "azurerm_container_app_job" "migrate" {
  name                         = "tidemill-migrate"
  location                     = var.location
  resource_group_name          = var.resource_group_name
  container_app_environment_id = var.container_app_environment_id
  replica_timeout_in_seconds   = 1800
  replica_retry_limit          = 1

  manual_trigger_config {
    parallelism              = 1
    replica_completion_count = 1
  }

  identity {
    type         = "UserAssigned"
    identity_ids = [var.identity_id]
  }

  registry {
    server   = var.registry
    identity = var.identity_id
  }

  secret {
    name                = "database"
    key_vault_secret_id = var.database_secret_id
    identity            = var.identity_id
  }

  template {
    container {
      name   = "migrate"
      image  = "${var.registry}/tidemill-server:${var.image_tag}"
      args   = ["migrate"]
      cpu    = 0.25
      memory = "0.5Gi"

      env {
        name        = "TIDEMILL_DATABASE"
        secret_name = "database"
      }
    }
  }
}

resource "azurerm_container_app" "role" {
  for_each = local.roles

  name                         = "tidemill-${each.key}"
  resource_group_name          = var.resource_group_name
  container_app_environment_id = var.container_app_environment_id
  revision_mode                = "Single"

  identity {
    type         = "UserAssigned"
    identity_ids = [var.identity_id]
  }

  registry {
    server   = var.registry
    identity = var.identity_id
  }

  secret {
    name                = "database"
    key_vault_secret_id = var.database_secret_id
    identity            = var.identity_id
  }

  secret {
    name                = "scaler"
    key_vault_secret_id = var.scaler_secret_id
    identity            = var.identity_id
  }

  # Only the server accepts requests.
  dynamic "ingress" {
    for_each = each.key == "server" ? [each.value.port] : []
    content {
      target_port                = ingress.value
      transport                  = "http"
      external_enabled           = var.is_public
      allow_insecure_connections = false

      traffic_weight {
        latest_revision = true
        percentage      = 100
      }
    }
  }

  template {
    min_replicas                     = each.value.replicas_min
    max_replicas                     = each.value.replicas_max
    termination_grace_period_seconds = each.value.grace_seconds

    container {
      name   = each.key
      image  = "${var.registry}/tidemill-server:${var.image_tag}"
      args   = each.value.args
      cpu    = 0.5
      memory = "1Gi"

      env {
        name        = "TIDEMILL_DATABASE"
        secret_name = "database"
      }

      env {
        name  = "TIDEMILL_LOG_FORMAT"
        value = "json"
      }

      liveness_probe {
        transport = "HTTP"
        path      = each.value.liveness
        port      = each.value.port
      }

      readiness_probe {
        transport = "HTTP"
        path      = each.value.readiness
        port      = each.value.port
      }
    }

    # The interval of 30 seconds and the cooldown of 300 seconds are those of the platform.
    dynamic "custom_scale_rule" {
      for_each = each.value.queue == null ? [] : [each.value.queue]
      content {
        name             = "queue-depth"
        custom_rule_type = "postgresql"
        metadata = {
          query                      = format(local.queue_depth, custom_scale_rule.value)
          targetQueryValue           = tostring(each.value.messages_per_replica)
          activationTargetQueryValue = "0"
        }

        authentication {
          secret_name       = "scaler"
          trigger_parameter = "connection"
        }
      }
    }
  }
}
