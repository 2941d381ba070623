# Runs a command on this machine with a root folder of its own, made of the machine's folders: what is written beside
# them is gone with the command. With CONTENT the root has a folder /content, which is that folder.
#   unshare --user --map-root-user --mount sh private_root.sh ROOT CONTENT COMMAND…
set -e
root=$1 content=$2
shift 2
mount -t tmpfs tmpfs "$root"
for folder in /*; do
  if [ "$folder" = /content ]; then
    :
  elif [ -L "$folder" ]; then
    cp -P "$folder" "$root/"
  elif [ -d "$folder" ]; then
    mkdir "$root$folder"
    mount --rbind "$folder" "$root$folder"
  fi
done
if [ -n "$content" ]; then
  mkdir "$root/content"
  mount --bind "$content" "$root/content"
fi
exec chroot "$root" "$@"
