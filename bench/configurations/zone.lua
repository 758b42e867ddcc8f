-- Every query is answered from a zone.
addLocal("$ADDRESS:53", {$LISTEN})
setACL({"0.0.0.0/0"})
setSecurityPollSuffix("")
millrace.setStateDirectory("$FOLDER")
millrace.addZone{name="example.com.", file="$ZONE"}
