/* Limits name look-ups of the static binary to the code that it contains.
 *
 * glibc loads the modules of /etc/nsswitch.conf, such as nss-resolve, as shared libraries. They need the glibc that they
 * were built for: with another one the static binary crashes. Host names come from /etc/hosts and DNS, users and groups
 * from their files. */

#include <nss.h>

__attribute__((constructor)) static void limit_name_service(void) {
  __nss_configure_lookup("hosts", "files dns");
  __nss_configure_lookup("passwd", "files");
  __nss_configure_lookup("group", "files");
  __nss_configure_lookup("initgroups", "files");
  __nss_configure_lookup("services", "files");
}
