variable "resource_group_name" {
  description = "Resource group of the container apps"
  type        = string
}

variable "location" {
  description = "Region of the migration job; that of the environment"
  type        = string
}

variable "container_app_environment_id" {
  description = "Id of the Container Apps environment, whose network reaches PostgreSQL"
  type        = string
}

variable "registry" {
  description = "Host name of the registry that contains the image tidemill-server"
  type        = string
}

variable "image_tag" {
  description = "Version of the image"
  type        = string
  default     = "0.1.0"
}

variable "identity_id" {
  description = "Id of a user-assigned identity that may pull images and read the two secrets"
  type        = string
}

variable "database_secret_id" {
  description = "Key Vault id of the secret with the address of the database: postgres://user:password@host/name"
  type        = string
}

variable "scaler_secret_id" {
  description = "Key Vault id of the secret for scaling: the address with a login IN ROLE tidemill_reader"
  type        = string
}

variable "is_public" {
  description = "Whether the server is reachable from outside of the environment"
  type        = bool
  default     = false
}
