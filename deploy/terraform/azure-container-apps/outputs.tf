output "server_fqdn" {
  description = "Host name of the server and its console"
  value       = azurerm_container_app.role["server"].ingress[0].fqdn
}
