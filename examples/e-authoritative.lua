-- e: zones of its own, no server behind it: what lies in no zone is refused.
addLocal("192.0.2.1:53", {xdp=true})  addLocal("[2001:db8::1]:53", {xdp=true})
-- The dialect's default lets private networks in, nobody else: a server of zones is for everybody.
setACL({"0.0.0.0/0", "::/0"})
setServerID("ns1.example.com")   -- NSID, id.server
millrace.addZone{name="example.com.", file="lab/example.com.zone", statistics=true}
-- Over AF_XDP no firewall stands before us. First with dryRun=true, looking at millrace_response_rate_limit in /metrics.
millrace.setResponseRateLimit{rate=50, slip=2, allow={"192.0.2.0/24"}}
webserver("127.0.0.1:8083")
setSecurityPollSuffix("")
