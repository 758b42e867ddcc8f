# help                lists the jobs
for file in dev.d/jobs/*.sh; do
    sed -n '1s/^# /  .\/dev /p' "$file"
done
